"""The `scratch` backend: our own encoder and decoder, which decodes with a cache.

Letters: B batch, N beams, S source length, T target length, D d_model.
"""

from typing import cast

import torch
from torch import Tensor, nn

from mt_cli.config.schema import ModelConfig
from mt_cli.model.cached_decoder import CachedState, init_cache
from mt_cli.model.transformer import Decoder, DecoderLayer, Encoder, as_bias, causal_mask


class ScratchBackend(nn.Module):
    """Encoder and decoder of our own; see `TransformerBackend` for the contract."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of `src` (B, S, D) under `src_mask` (B, S)."""
        return self.encoder(src, _src_bias(src_mask, src.dtype))

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D) under `src_mask` (B, S)."""
        tgt_bias = as_bias(causal_mask(tgt.shape[1], device=tgt.device), tgt.dtype)  # (T, T)
        return self.decoder(tgt, memory, tgt_bias, _src_bias(src_mask, tgt.dtype))

    def start(self, memory: Tensor, src_mask: Tensor) -> CachedState:
        """State with the memory's keys and values projected."""
        layers = cast("list[DecoderLayer]", list(self.decoder.layers))
        return init_cache(layers, memory, _src_bias(src_mask, torch.float32))

    def step(self, tgt: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, embedded as `tgt` (B, N, D)."""
        B, N, D = tgt.shape
        state.advance(N)
        x = tgt.view(B * N, D)
        for layer in state.layers:
            x = layer.step(x, state)
        return self.decoder.norm(x).view(B, N, D)


def _src_bias(src_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Bias (B, 1, 1, S) of `src_mask` (B, S), shared by all heads and queries."""
    return as_bias(src_mask[:, None, None, :], dtype)
