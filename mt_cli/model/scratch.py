"""The from-scratch backend: our own layers, and decoding with a key/value cache.

Knows vectors, not ids. Letters: B batch, N beams, S source length, T target length, D d_model.
"""

from typing import cast

from torch import Tensor, nn

from mt_cli.model.cached_decoder import CachedState, start
from mt_cli.model.layers import DecoderLayer, EncoderLayer, LayerOptions
from mt_cli.model.masks import as_bias, causal_mask


class Encoder(nn.Module):
    """A stack of encoder layers and an optional final norm."""

    def __init__(self, options: LayerOptions, num_layers: int, *, final_norm: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(options) for _ in range(num_layers))
        self.norm = nn.LayerNorm(options.d_model) if final_norm else nn.Identity()

    def forward(self, x: Tensor, src_bias: Tensor) -> Tensor:
        """`x` (B, S, D) under `src_bias` (B, 1, 1, S): (B, S, D)."""
        for layer in self.layers:
            x = layer(x, src_bias)
        normed: Tensor = self.norm(x)
        return normed


class Decoder(nn.Module):
    """A stack of decoder layers and an optional final norm."""

    def __init__(self, options: LayerOptions, num_layers: int, *, final_norm: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(options) for _ in range(num_layers))
        self.norm = nn.LayerNorm(options.d_model) if final_norm else nn.Identity()

    def forward(self, x: Tensor, memory: Tensor, *, tgt_bias: Tensor, src_bias: Tensor) -> Tensor:
        """`x` (B, T, D) and `memory` (B, S, D) under `tgt_bias` (T, T) and `src_bias` (B, 1, 1, S)."""
        for layer in self.layers:
            x = layer(x, memory, tgt_bias=tgt_bias, src_bias=src_bias)
        normed: Tensor = self.norm(x)
        return normed

    def start(self, memory: Tensor, src_mask: Tensor) -> CachedState:
        """State over `memory` (B, S, D) under the boolean `src_mask` (B, S), with one beam."""
        return start(cast("list[DecoderLayer]", list(self.layers)), memory, src_mask)

    def step(self, x: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, whose input is `x` (B, N, D)."""
        B, N, D = x.shape
        state.advance(N)
        x = x.view(B * N, D)
        for layer in state.layers:
            x = layer.step(x, state)
        normed: Tensor = self.norm(x)
        return normed.view(B, N, D)


class ScratchBackend(nn.Module):
    """Encoder and decoder of our own; see `TransformerBackend` for the contract."""

    def __init__(
        self, options: LayerOptions, *, encoder_layers: int, decoder_layers: int, final_norm: bool
    ) -> None:
        super().__init__()
        self.encoder = Encoder(options, encoder_layers, final_norm=final_norm)
        self.decoder = Decoder(options, decoder_layers, final_norm=final_norm)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of `src` (B, S, D) under `src_mask` (B, S)."""
        memory: Tensor = self.encoder(src, _for_all(src_mask))
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D) under `src_mask` (B, S)."""
        tgt_bias = as_bias(causal_mask(tgt.shape[1], device=tgt.device))  # (T, T)
        out: Tensor = self.decoder(tgt, memory, tgt_bias=tgt_bias, src_bias=_for_all(src_mask))
        return out

    def start(self, memory: Tensor, src_mask: Tensor) -> CachedState:
        """State with the memory's keys and values projected."""
        return self.decoder.start(memory, src_mask)

    def step(self, tgt: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, embedded as `tgt` (B, N, D)."""
        return self.decoder.step(tgt, state)


def _for_all(src_mask: Tensor) -> Tensor:
    """Bias (B, 1, 1, S) of `src_mask` (B, S), shared by all heads and queries."""
    return as_bias(src_mask)[:, None, None, :]
