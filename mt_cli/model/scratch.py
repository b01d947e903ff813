"""The from-scratch backend: our own layers, and decoding with a key/value cache.

Knows vectors, not ids. Letters: B batch, N beams, S source length, T target length, D d_model.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.model.attention import as_bias, pad_mask
from mt_cli.model.layers import DecoderLayer, EncoderLayer, LayerCache, LayerOptions
from mt_cli.model.masks import causal_mask


@dataclass
class CachedState:
    """Keys and values of all layers, so that a step computes one position only."""

    layers: list[LayerCache]
    src_mask: Tensor
    """Which of the source may be attended, (B, 1, 1, S), after `as_bias` and `pad_mask`."""
    past: Tensor
    """Which slots are of each beam's own past, (B, N, shown), after `as_bias` and `pad_mask`."""
    used: int = 0
    """Slots filled in each layer: one for every beam at every step."""
    length: int = 0

    def keep(self, rows: Tensor) -> None:
        """Go on with the sentences `rows` (M,) only; only those that change places move."""
        places = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
        for cache in self.layers:
            cache.move(rows[places], places, num_rows=len(rows), used=self.used)
        self.src_mask, self.past = self.src_mask[rows], self.past[rows]

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b go on from its beam `beams[b, n]`, (B, N).

        No key or value moves: a beam that goes on from another shares its slots, and only marks them.
        """
        sentences = torch.arange(len(beams), device=beams.device).unsqueeze(1)  # (B, 1)
        self.past = self.past[sentences, beams]

    def advance(self, num_beams: int) -> None:
        """Count one more position of each of `num_beams` beams, which is of its own past alone."""
        slots = slice(self.used, self.used + num_beams)
        self.length += 1
        self.used += num_beams
        if self.used > self.past.shape[-1]:
            new = self.used - self.past.shape[-1]
            self.past = pad_mask(F.pad(self.past, (0, new), value=-math.inf))
        own = torch.eye(num_beams, dtype=torch.bool, device=self.past.device)
        self.past[:, :, slots] = as_bias(own)


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

    def start(self, memory: Tensor) -> list[LayerCache]:
        """Caches of all layers over `memory` (B, S, D)."""
        return [layer.start(memory) for layer in self._layers()]

    def step(self, x: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, whose input is `x` (B, N, D)."""
        used = state.used
        state.advance(x.shape[1])
        past = state.past.unsqueeze(1)  # (B, 1, N, shown): the same for every head
        for layer, cache in zip(self._layers(), state.layers, strict=True):
            x = layer.step(x, cache, used=used, past=past, src_mask=state.src_mask)
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
        memory: Tensor = self.encoder(src, _for_all(src_mask))
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D) under `src_mask` (B, S)."""
        tgt_mask = causal_mask(tgt.shape[1], device=tgt.device)
        out: Tensor = self.decoder(tgt, memory, tgt_mask=tgt_mask, src_mask=_for_all(src_mask))
        return out

    def start(self, memory: Tensor, src_mask: Tensor) -> CachedState:
        """State with the memory's keys and values projected."""
        no_past = memory.new_empty(len(memory), 1, 0)
        mask = pad_mask(as_bias(_for_all(src_mask)))
        return CachedState(self.decoder.start(memory), mask, no_past)

    def step(self, tgt: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, embedded as `tgt` (B, N, D)."""
        return self.decoder.step(tgt, state)


def _for_all(src_mask: Tensor) -> Tensor:
    return src_mask[:, None, None, :]  # (B, 1, 1, S): the same for every head and query
