"""The from-scratch backend: our own layers, and decoding with a key/value cache.

Knows vectors, not ids. Letters: B batch, S source length, T target length, D d_model.
"""

from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from mt_cli.model.layers import DecoderLayer, EncoderLayer, LayerCache, LayerOptions
from mt_cli.model.masks import causal_mask


@dataclass
class CachedState:
    """Keys and values of all layers, so that a step computes one position only."""

    layers: list[LayerCache]
    src_mask: Tensor
    """(B, 1, 1, S), True = may be attended."""
    length: int = 0

    def select(self, rows: Tensor) -> Self:
        """The state of the sentences `rows` (M,)."""
        return type(self)([cache.select(rows) for cache in self.layers], self.src_mask[rows], self.length)

    def arrange(self, beams: Tensor) -> Self:
        """The state in which beam n of sentence b goes on from its beam `beams[b, n]`, (B, N)."""
        layers = [cache.arrange(beams, self.length) for cache in self.layers]
        return type(self)(layers, self.src_mask, self.length)


class Encoder(nn.Module):
    """A stack of encoder layers, and perhaps a last norm."""

    def __init__(self, options: LayerOptions, num_layers: int, *, final_norm: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(options) for _ in range(num_layers))
        self.norm = nn.LayerNorm(options.d_model) if final_norm else nn.Identity()

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        """`x` (B, S, D) under `src_mask` (B, 1, 1, S): (B, S, D)."""
        for layer in self.layers:
            x = layer(x, src_mask)
        normed: Tensor = self.norm(x)
        return normed


class Decoder(nn.Module):
    """A stack of decoder layers, and perhaps a last norm."""

    def __init__(self, options: LayerOptions, num_layers: int, *, final_norm: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(options) for _ in range(num_layers))
        self.norm = nn.LayerNorm(options.d_model) if final_norm else nn.Identity()

    def forward(self, x: Tensor, memory: Tensor, *, tgt_mask: Tensor, src_mask: Tensor) -> Tensor:
        """`x` (B, T, D), `memory` (B, S, D), `tgt_mask` (T, T), `src_mask` (B, 1, 1, S): (B, T, D)."""
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
        normed: Tensor = self.norm(x)
        return normed

    def start(self, memory: Tensor, *, max_len: int) -> list[LayerCache]:
        """Caches of all layers over `memory` (B, S, D)."""
        return [layer.start(memory, max_len=max_len) for layer in self._layers()]

    def step(self, x: Tensor, caches: list[LayerCache], position: int, src_mask: Tensor) -> Tensor:
        """Output (B, N, D) of each beam at `position`, whose input is `x` (B, N, D)."""
        for layer, cache in zip(self._layers(), caches, strict=True):
            x = layer.step(x, cache, position, src_mask)
        normed: Tensor = self.norm(x)
        return normed

    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


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
        memory: Tensor = self.encoder(src, _for_heads(src_mask))
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D) under `src_mask` (B, S)."""
        tgt_mask = causal_mask(tgt.shape[1], device=tgt.device)
        out: Tensor = self.decoder(tgt, memory, tgt_mask=tgt_mask, src_mask=_for_heads(src_mask))
        return out

    def start(self, memory: Tensor, src_mask: Tensor, *, max_len: int) -> CachedState:
        """State with the memory's keys and values projected, and room for `max_len` positions."""
        return CachedState(self.decoder.start(memory, max_len=max_len), _for_heads(src_mask))

    def step(self, tgt: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, embedded as `tgt` (B, N, D)."""
        out = self.decoder.step(tgt, state.layers, state.length, state.src_mask)
        state.length += 1
        return out


def _for_heads(src_mask: Tensor) -> Tensor:
    return src_mask[:, None, None, :]  # (B, 1, 1, S): the same for every head and query
