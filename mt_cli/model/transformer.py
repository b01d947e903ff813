"""The Transformer from scratch, on one page (Vaswani et al. 2017, 3): to be read beside the paper.

Masks are boolean, and True means "may be attended", everywhere in this project. A bias is a mask in
the form that is added to scores. Parameters have the names and shapes of nn.Transformer's, so
weights fit both backends. Letters: B batch, N beams, S source length or keys, T target length or
queries, D d_model, F d_ff, H heads, K head size (D = H·K).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.model.cached_decoder import CachedState, start
from mt_cli.model.cpu_kernels import Dropout, biased_softmax

# Masks


def padding_mask(ids: Tensor, *, pad_id: int) -> Tensor:
    """Which positions of `ids` (B, S) are real: boolean (B, S)."""
    return ids != pad_id


def causal_mask(length: int, *, device: torch.device) -> Tensor:
    """Who may see whom in a target: position t sees positions 0 to t. Boolean (T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def as_bias(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The logarithm of the boolean `mask`, to be added to scores: 0 where True, minus infinity
    where False.

    Adding takes a tenth of the time of masking, so each mask is converted once and used often. Rows
    start at multiples of `ALIGNMENT`, because a GPU's attention copies unaligned ones in every
    layer.
    """
    *others, keys = mask.shape
    room = torch.empty(*others, -(-keys // ALIGNMENT) * ALIGNMENT, dtype=dtype, device=mask.device)
    return torch.log(mask, out=room[..., :keys])


ALIGNMENT = 8


# Positions (3.5)


def sinusoids(max_len: int, d_model: int) -> Tensor:
    """Waves of falling frequency, (max_len, D) (Vaswani et al. 2017, 3.5).

    Even columns hold sin(position / 10000^(i/D)), odd columns the cosine of the same angle.
    """
    position = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)  # (max_len, 1)
    frequency = torch.exp(
        torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model)
    )
    angles = position * frequency  # (max_len, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()  # (max_len, D)


class Positions(nn.Module):
    """Adds a vector for each position: fixed sinusoids or learned parameters."""

    def __init__(self, max_len: int, d_model: int, *, learned: bool) -> None:
        super().__init__()
        if learned:
            self.weight = nn.Parameter(torch.zeros(max_len, d_model))
        else:
            self.register_buffer("weight", sinusoids(max_len, d_model), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`x` (B, T, D) with positions added: (B, T, D)."""
        return x + self.weight[: x.shape[1]]


# Attention (3.2)


def attention_weights(q: Tensor, k: Tensor, attn_bias: Tensor) -> Tensor:
    """softmax(q kᵀ / √K), (B, H, T, S): each row is a distribution over the keys that `attn_bias`
    allows.

    `q` is (B, H, T, K), `k` is (B, H, S, K). `attn_bias` is a mask converted by `as_bias`; it
    broadcasts to (B, H, T, S). A query that may attend to nothing gives NaN.
    """
    assert attn_bias.is_floating_point(), "a mask has to go through as_bias first"
    # A dot product of K terms has a variance of about K; undivided, it would saturate the softmax.
    return biased_softmax(q @ k.mT, attn_bias, scale=1 / math.sqrt(q.shape[-1]))


class ScaledDotProductAttention(nn.Module):
    """softmax(q kᵀ / √K) v, per head: each query's mean of the values, weighted by how well the
    keys match.

    A module, so that hooks can observe it. Dropout applies to the weights.
    """

    def __init__(self, dropout: Dropout) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor) -> Tensor:
        """`q` (B, H, T, K) attends to `k`, `v` (B, H, S, K) where `attn_bias` (…, S) allows: (B, H,
        T, K).
        """
        assert attn_bias.shape[-1] == k.shape[-2], "attn_bias needs one column for each key"
        if q.is_cuda:  # all of it in one kernel
            rate = self.dropout.p if self.training else 0.0
            return F.scaled_dot_product_attention(q, k, v, attn_bias, dropout_p=rate)
        mean: Tensor = self.dropout(attention_weights(q, k, attn_bias)) @ v
        return mean


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each over its own projection of queries, keys and values.

    The three input projections are packed in one (3·D, D) matrix, named as in
    nn.MultiheadAttention.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: Dropout) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(
            torch.empty(3 * d_model, d_model)
        )  # filled by `initialise`
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj = nn.Linear(d_model, d_model)
        self.attention = ScaledDotProductAttention(dropout)

    def forward(self, x: Tensor, attn_bias: Tensor, *, memory: Tensor | None = None) -> Tensor:
        """`x` (B, T, D) attends to `memory` (B, S, D), or without one to itself: (B, T, D).

        `attn_bias` (…, S) is a mask converted by `as_bias`; it broadcasts to (B, H, T, S).
        """
        if memory is None:
            packed = F.linear(x, self.in_proj_weight, self.in_proj_bias)
            q, k, v = (self._split_heads(each) for each in packed.chunk(3, dim=-1))
        else:
            of_query, of_memory = self._projections()
            q = self._split_heads(F.linear(x, *of_query))
            k, v = (
                self._split_heads(each) for each in F.linear(memory, *of_memory).chunk(2, dim=-1)
            )
        heads = self.attention(q, k, v, attn_bias)  # (B, H, T, K)
        joined: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))
        return joined

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `memory` (B, S, D), each (B, H, S, K)."""
        k, v = F.linear(memory, *self._projections()[1]).chunk(2, dim=-1)
        return self._split_heads(k), self._split_heads(v)

    def _projections(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Weight and bias for queries, and those for keys and values."""
        D = self.in_proj_weight.shape[1]
        (q_weight, kv_weight), (q_bias, kv_bias) = (
            torch.split(packed, [D, 2 * D]) for packed in (self.in_proj_weight, self.in_proj_bias)
        )
        return (q_weight, q_bias), (kv_weight, kv_bias)

    def _split_heads(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        return x.view(B, T, self.num_heads, D // self.num_heads).transpose(1, 2)  # (B, H, T, K)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,  # not in place: the gradient of a changed view takes three more copies
    "gelu": torch.nn.functional.gelu,
}


# Layers (3.1 and 3.3), with the norm before or after (Xiong et al. 2020)


@dataclass(frozen=True)
class TransformerOptions:
    """The numbers that make an encoder and a decoder; all layers are alike."""

    d_model: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    d_ff: int
    is_pre_norm: bool
    final_norm: bool
    activation: str
    dropout: float
    attention_dropout: float
    activation_dropout: float


class Layer(nn.Module):
    """What encoder and decoder layers share: residual connections and the feed-forward network."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.is_pre_norm = options.is_pre_norm
        self.linear1 = nn.Linear(options.d_model, options.d_ff)
        self.linear2 = nn.Linear(options.d_ff, options.d_model)
        self.activation = ACTIVATIONS[options.activation]
        self.activation_dropout = Dropout(options.activation_dropout)
        self.dropout = Dropout(options.dropout)

    def residual(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """`x` (B, T, D) plus the output of `sublayer`, with the norm before or after."""
        if self.is_pre_norm:
            summed: Tensor = self.dropout.add_to(x, sublayer(norm(x)))
            return summed
        normed: Tensor = norm(self.dropout.add_to(x, sublayer(x)))
        return normed

    def feed_forward(self, x: Tensor) -> Tensor:
        """Two linear maps with an activation between, for each position: (B, T, D) to (B, T, D)."""
        hidden = self.activation_dropout(self.activation(self.linear1(x)))  # (B, T, F)
        out: Tensor = self.linear2(hidden)
        return out


class EncoderLayer(Layer):
    """Self-attention over the source, then a feed-forward network."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__(options)
        self.self_attn = _attention(options)
        self.norm1 = nn.LayerNorm(options.d_model)
        self.norm2 = nn.LayerNorm(options.d_model)

    def forward(self, x: Tensor, src_bias: Tensor) -> Tensor:
        """`x` (B, S, D) under `src_bias` (B, 1, 1, S): (B, S, D)."""
        x = self.residual(x, self.norm1, lambda y: self.self_attn(y, src_bias))
        return self.residual(x, self.norm2, self.feed_forward)


class DecoderLayer(Layer):
    """Causal self-attention, attention to the memory, then a feed-forward network."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__(options)
        self.self_attn = _attention(options)
        self.multihead_attn = _attention(options)
        self.norm1 = nn.LayerNorm(options.d_model)
        self.norm2 = nn.LayerNorm(options.d_model)
        self.norm3 = nn.LayerNorm(options.d_model)

    def forward(self, x: Tensor, memory: Tensor, tgt_bias: Tensor, src_bias: Tensor) -> Tensor:
        """`x` (B, T, D) and `memory` (B, S, D) to (B, T, D).

        `tgt_bias` (T, T) masks self-attention, `src_bias` (B, 1, 1, S) attention to the memory.
        """
        x = self.residual(x, self.norm1, lambda y: self.self_attn(y, tgt_bias))
        x = self.residual(x, self.norm2, lambda y: self.multihead_attn(y, src_bias, memory=memory))
        return self.residual(x, self.norm3, self.feed_forward)


def _attention(options: TransformerOptions) -> MultiHeadAttention:
    return MultiHeadAttention(
        options.d_model, options.num_heads, Dropout(options.attention_dropout)
    )


# Encoder and decoder: the from-scratch backend


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
        self.encoder = Stack(
            [EncoderLayer(options) for _ in range(options.encoder_layers)], options
        )
        self.decoder = Stack(
            [DecoderLayer(options) for _ in range(options.decoder_layers)], options
        )

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of `src` (B, S, D) under `src_mask` (B, S)."""
        memory: Tensor = self.encoder(src, _for_all(src_mask, src.dtype))
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D) under `src_mask` (B, S)."""
        tgt_bias = as_bias(causal_mask(tgt.shape[1], device=tgt.device), tgt.dtype)  # (T, T)
        out: Tensor = self.decoder(tgt, memory, tgt_bias, _for_all(src_mask, tgt.dtype))
        return out

    def start(self, memory: Tensor, src_mask: Tensor) -> CachedState:
        """State with the memory's keys and values projected."""
        layers = cast("list[DecoderLayer]", list(self.decoder.layers))
        return start(layers, memory, _for_all(src_mask, torch.float32))

    def step(self, tgt: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, embedded as `tgt` (B, N, D)."""
        B, N, D = tgt.shape
        state.advance(N)
        x = tgt.view(B * N, D)
        for layer in state.layers:
            x = layer.step(x, state)
        normed: Tensor = self.decoder.norm(x)
        return normed.view(B, N, D)


def _for_all(src_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Bias (B, 1, 1, S) of `src_mask` (B, S), shared by all heads and queries."""
    return as_bias(src_mask[:, None, None, :], dtype)


# What both backends promise


class DecoderState(Protocol):
    """What a decoder remembers between steps, for B sentences of N beams each (one at the start)."""

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Keep only the sentences `rows` (M,), in that order."""
        ...

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `beams[b, n]`; `beams` is (B, N).

        N may exceed the number of present beams, as it does after the first step.
        """
        ...


class TransformerBackend(Protocol):
    """An encoder and a decoder; their parameters have the names and shapes of nn.Transformer's.

    Masks are boolean, True = may be attended. Every source has at least one real position.
    """

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of embedded sources `src` (B, S, D) under `src_mask` (B, S)."""
        ...

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D); position t sees `tgt` up to
        t.
        """
        ...

    def start(self, memory: Tensor, src_mask: Tensor) -> DecoderState:
        """State before the first step over `memory` (B, S, D), with one beam."""
        ...

    def step(self, tgt: Tensor, state: DecoderState) -> Tensor:
        """Decoder output (B, N, D) for each beam's next position, embedded as `tgt` (B, N, D).

        Advances `state`.
        """
        ...
