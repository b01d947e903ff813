"""Encoder and decoder layers, pre- or post-norm (Vaswani et al. 2017, 3.1; Xiong et al. 2020).

Parameter names are those of nn.TransformerEncoderLayer and nn.TransformerDecoderLayer.
Letters: B batch, S source length, T target length, D d_model, F d_ff, H heads, K head size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt_cli.model.attention import MultiHeadAttention, pad_keys
from mt_cli.model.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,  # in place: nobody needs its input again
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
    """Of what the beams have seen, (B, H, room, K): a slot for each position of each beam, as it came.

    Keys lie in memory as (B, H, K, room), which is how a query is multiplied by them.
    """
    self_v: Tensor
    memory_k: Tensor
    """Of the source, (B, H, S, K), after `pad_keys`: one for all beams of a sentence."""
    memory_v: Tensor

    def append(self, k: Tensor, v: Tensor, *, used: int, shown: int) -> tuple[Tensor, Tensor]:
        """Write `k` and `v` (B, H, N, K) after the first `used` slots; gives the first `shown`."""
        if shown > self.self_k.shape[2]:
            # Twice the room each time, so that an entry is copied about once.
            room = max(shown, 2 * self.self_k.shape[2])
            self.self_k = _with_room(self.self_k, used, room, keys=True)
            self.self_v = _with_room(self.self_v, used, room)
        slots = slice(used, used + k.shape[2])
        self.self_k[:, :, slots] = k
        self.self_v[:, :, slots] = v
        return self.self_k[:, :, :shown], self.self_v[:, :, :shown]

    def move(self, sources: Tensor, places: Tensor, *, num_rows: int, used: int) -> None:
        """Put the sentences `sources` (P,) at `places` (P,), and keep the first `num_rows` sentences."""
        for of_slots in (self.self_k, self.self_v):
            of_slots[places, :, :used] = of_slots[sources, :, :used]
        for of_memory in (self.memory_k, self.memory_v):
            of_memory[places] = of_memory[sources]
        self.self_k, self.self_v = self.self_k[:num_rows], self.self_v[:num_rows]
        self.memory_k, self.memory_v = self.memory_k[:num_rows], self.memory_v[:num_rows]


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

    def start(self, memory: Tensor) -> LayerCache:
        """Cache over `memory` (B, S, D), with no target position yet."""
        k, v = pad_keys(*self.multihead_attn.project_memory(memory))
        B, H, _, K = k.shape
        nothing = k.new_empty(B, H, 0, K)
        return LayerCache(nothing, nothing, k.mT.contiguous().mT, v.contiguous())

    def step(self, x: Tensor, cache: LayerCache, *, used: int, past: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, N, D) at the next position of each of N beams, given `x` (B, N, D); fills the cache.

        `used` slots are filled so far. `past` (B, 1, N, shown) marks which of the first `shown` belong to
        each beam's own past, with the new one.
        """
        x = self.residual(x, self.norm1, lambda y: self._cached_self_attention(y, cache, used, past))
        x = self.residual(x, self.norm2, lambda y: self._cached_cross_attention(y, cache, src_mask))
        return self.residual(x, self.norm3, self.feed_forward)

    def _cached_self_attention(self, x: Tensor, cache: LayerCache, used: int, past: Tensor) -> Tensor:
        q, k, v = self.self_attn.project_all(x)  # each (B, H, N, K)
        k, v = cache.append(k, v, used=used, shown=past.shape[-1])
        return self.self_attn.attend(q, k, v, past)

    def _cached_cross_attention(self, x: Tensor, cache: LayerCache, src_mask: Tensor) -> Tensor:
        # All beams of a sentence read the same memory, as so many queries.
        q = self.multihead_attn.project_query(x)  # (B, H, N, K)
        return self.multihead_attn.attend(q, cache.memory_k, cache.memory_v, src_mask)


def _with_room(old: Tensor, used: int, room: int, *, keys: bool = False) -> Tensor:
    """The first `used` slots of `old` (B, H, …, K), with room for `room`; the empty ones are zero."""
    B, H, _, K = old.shape
    grown = old.new_empty(B, H, K, room).mT if keys else old.new_empty(B, H, room, K)
    grown[:, :, :used] = old[:, :, :used]
    grown[:, :, used:] = 0  # hidden, but what is hidden must still be a number
    return grown


def _attention(options: LayerOptions) -> MultiHeadAttention:
    return MultiHeadAttention(options.d_model, options.num_heads, Dropout(options.attention_dropout))
