"""Encoder and decoder layers, pre- or post-norm (Vaswani et al. 2017, 3.1; Xiong et al. 2020).

Parameter names are those of nn.TransformerEncoderLayer and nn.TransformerDecoderLayer.
Letters: B batch, S source length, T target length, D d_model, F d_ff, H heads, K head size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from mt_cli.model.attention import MultiHeadAttention
from mt_cli.model.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
}


@dataclass(frozen=True)
class LayerOptions:
    """The numbers that every layer of a model shares."""

    d_model: int
    num_heads: int
    d_ff: int
    is_pre_norm: bool
    activation: str
    dropout: float
    attention_dropout: float
    activation_dropout: float


@dataclass
class LayerCache:
    """Projected keys and values of one decoder layer, computed once instead of at every step."""

    self_k: Tensor
    """Of each beam's target positions so far, (B, N, H, max_len, K); later places are not yet written."""
    self_v: Tensor
    memory_k: Tensor
    """Of the source, (B, H, S, K): one for all beams of a sentence."""
    memory_v: Tensor

    def select(self, rows: Tensor) -> Self:
        """The cache of the sentences `rows` (M,)."""
        return type(self)(self.self_k[rows], self.self_v[rows], self.memory_k[rows], self.memory_v[rows])

    def arrange(self, beams: Tensor, length: int) -> Self:
        """The cache in which beam n of sentence b goes on from its beam `beams[b, n]`, (B, N)."""
        return type(self)(
            _arrange(self.self_k, beams, length), _arrange(self.self_v, beams, length),
            self.memory_k, self.memory_v,
        )  # fmt: skip


class Layer(nn.Module):
    """What encoder and decoder layers share: residual connections and the feed-forward network."""

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        self.is_pre_norm = options.is_pre_norm
        self.linear1 = nn.Linear(options.d_model, options.d_ff)
        self.linear2 = nn.Linear(options.d_ff, options.d_model)
        self.activation = ACTIVATIONS[options.activation]
        self.activation_dropout = Dropout(options.activation_dropout)
        self.dropout = Dropout(options.dropout)

    def residual(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """`x` (B, T, D) plus what `sublayer` makes of it, normalised before or after."""
        if self.is_pre_norm:
            summed: Tensor = x + self.dropout(sublayer(norm(x)))
            return summed
        normed: Tensor = norm(x + self.dropout(sublayer(x)))
        return normed

    def feed_forward(self, x: Tensor) -> Tensor:
        """Two linear maps with an activation between, at each place alone: (B, T, D) to (B, T, D)."""
        hidden = self.activation_dropout(self.activation(self.linear1(x)))  # (B, T, F)
        out: Tensor = self.linear2(hidden)
        return out


class EncoderLayer(Layer):
    """Self-attention over the source, then a feed-forward network."""

    def __init__(self, options: LayerOptions) -> None:
        super().__init__(options)
        self.self_attn = _attention(options)
        self.norm1 = nn.LayerNorm(options.d_model)
        self.norm2 = nn.LayerNorm(options.d_model)

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        """`x` (B, S, D) under `src_mask` (B, 1, 1, S): (B, S, D)."""
        x = self.residual(x, self.norm1, lambda y: self.self_attn(y, src_mask))
        return self.residual(x, self.norm2, self.feed_forward)


class DecoderLayer(Layer):
    """Causal self-attention, attention to the memory, then a feed-forward network."""

    def __init__(self, options: LayerOptions) -> None:
        super().__init__(options)
        self.self_attn = _attention(options)
        self.multihead_attn = _attention(options)
        self.norm1 = nn.LayerNorm(options.d_model)
        self.norm2 = nn.LayerNorm(options.d_model)
        self.norm3 = nn.LayerNorm(options.d_model)

    def forward(self, x: Tensor, memory: Tensor, *, tgt_mask: Tensor, src_mask: Tensor) -> Tensor:
        """`x` (B, T, D) and `memory` (B, S, D) under `tgt_mask` (T, T) and `src_mask` (B, 1, 1, S)."""
        x = self.residual(x, self.norm1, lambda y: self.self_attn(y, tgt_mask))
        x = self.residual(x, self.norm2, lambda y: self.multihead_attn(y, src_mask, memory=memory))
        return self.residual(x, self.norm3, self.feed_forward)

    def start(self, memory: Tensor, *, max_len: int) -> LayerCache:
        """Cache over `memory` (B, S, D), of one beam with room for `max_len` target positions."""
        k, v = self.multihead_attn.project_memory(memory)
        B, H, _, K = k.shape
        room = k.new_empty(2, B, 1, H, max_len, K)
        return LayerCache(room[0], room[1], k.contiguous(), v.contiguous())

    def step(self, x: Tensor, cache: LayerCache, position: int, src_mask: Tensor) -> Tensor:
        """Output (B, N, D) of each of N beams at `position` alone, given `x` (B, N, D); fills the cache."""
        x = self.residual(x, self.norm1, lambda y: self._cached_self_attention(y, cache, position))
        x = self.residual(x, self.norm2, lambda y: self._cached_cross_attention(y, cache, src_mask))
        return self.residual(x, self.norm3, self.feed_forward)

    def _cached_self_attention(self, x: Tensor, cache: LayerCache, position: int) -> Tensor:
        # Each beam has a past of its own, so it stands alone here: B·N sentences of one position.
        B, N, D = x.shape
        q, k, v = self.self_attn.project_all(x.reshape(B * N, 1, D))  # each (B·N, H, 1, K)
        past_k, past_v = (cached.flatten(0, 1) for cached in (cache.self_k, cache.self_v))  # views
        past_k[:, :, position : position + 1] = k
        past_v[:, :, position : position + 1] = v
        seen = slice(0, position + 1)
        # Only the past is in the cache, so nothing needs masking.
        everything = torch.ones(1, dtype=torch.bool, device=x.device)
        return self.self_attn.attend(q, past_k[:, :, seen], past_v[:, :, seen], everything).view(B, N, D)

    def _cached_cross_attention(self, x: Tensor, cache: LayerCache, src_mask: Tensor) -> Tensor:
        # All beams of a sentence read the same memory, as so many queries.
        q = self.multihead_attn.project_query(x)  # (B, H, N, K)
        return self.multihead_attn.attend(q, cache.memory_k, cache.memory_v, src_mask)


def _arrange(cached: Tensor, beams: Tensor, length: int) -> Tensor:
    """`cached` (B, N, H, max_len, K) with the first `length` places of `beams` (B, M) in the order given."""
    B, M = beams.shape
    arranged = cached.new_empty(B, M, *cached.shape[2:])
    sentences = torch.arange(B, device=beams.device).unsqueeze(1)  # (B, 1)
    arranged[..., :length, :] = cached[..., :length, :][sentences, beams]
    return arranged


def _attention(options: LayerOptions) -> MultiHeadAttention:
    return MultiHeadAttention(options.d_model, options.num_heads, Dropout(options.attention_dropout))
