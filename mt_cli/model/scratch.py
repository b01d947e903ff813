"""The from-scratch backend: our own layers, and decoding with a key/value cache.

Knows vectors, not ids. Letters: B batch, N beams, S source length, T target length, D d_model.
"""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from mt_cli.model.cached_decoder import CachedState, start
from mt_cli.model.layers import DecoderLayer, EncoderLayer, TransformerOptions
from mt_cli.model.masks import as_bias, causal_mask


class Stack(nn.Module):
    """Layers one after the other, and an optional final norm."""

    def __init__(self, layers: Sequence[nn.Module], options: TransformerOptions) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(options.d_model) if options.final_norm else nn.Identity()

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """`x` (B, T, D) through all layers, each of which takes `others` too: (B, T, D)."""
        for layer in self.layers:
            x = layer(x, *others)
        normed: Tensor = self.norm(x)
        return normed


class ScratchBackend(nn.Module):
    """Encoder and decoder of our own; see `TransformerBackend` for the contract."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.encoder = Stack([EncoderLayer(options) for _ in range(options.encoder_layers)], options)
        self.decoder = Stack([DecoderLayer(options) for _ in range(options.decoder_layers)], options)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of `src` (B, S, D) under `src_mask` (B, S)."""
        memory: Tensor = self.encoder(src, _for_all(src_mask))
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D) under `src_mask` (B, S)."""
        tgt_bias = as_bias(causal_mask(tgt.shape[1], device=tgt.device))  # (T, T)
        out: Tensor = self.decoder(tgt, memory, tgt_bias, _for_all(src_mask))
        return out

    def start(self, memory: Tensor, src_mask: Tensor) -> CachedState:
        """State with the memory's keys and values projected."""
        return start(cast("list[DecoderLayer]", list(self.decoder.layers)), memory, src_mask)

    def step(self, tgt: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, embedded as `tgt` (B, N, D)."""
        B, N, D = tgt.shape
        state.advance(N)
        x = tgt.view(B * N, D)
        for layer in state.layers:
            x = layer.step(x, state)
        normed: Tensor = self.decoder.norm(x)
        return normed.view(B, N, D)


def _for_all(src_mask: Tensor) -> Tensor:
    """Bias (B, 1, 1, S) of `src_mask` (B, S), shared by all heads and queries."""
    return as_bias(src_mask)[:, None, None, :]
