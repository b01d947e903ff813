"""The Transformer from scratch, to be read alongside the paper (Vaswani et al. 2017, 3).

Masks are boolean, and True means "may be attended", everywhere in this project. A bias is a mask in
additive form, to be added to scores. Parameters have nn.Transformer's names and shapes, so weights
fit both backends. Embeddings, their scaling by √D and the output layer (3.4) are in
`model.model`. K is the paper's d_k = d_v. Letters: B batch, S source length or keys, T target
length or queries, D d_model, F d_ff, H heads, K head size (D = H·K).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.config.schema import ModelConfig
from mt_cli.model.cpu_kernels import Dropout, bf16_softmax
from mt_cli.model.numpy_model import sinusoids

# Masks


def padding_mask(ids: Tensor, *, pad_id: int) -> Tensor:
    """Which positions of `ids` (B, S) are real: boolean (B, S)."""
    return ids != pad_id


def causal_mask(length: int, *, device: torch.device) -> Tensor:
    """Position t of a target may attend to positions 0 to t. Boolean (T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


BIAS_ALIGNMENT = 8
"""Rows of a bias start at multiples of this many numbers; otherwise attention on a GPU copies the
bias in every layer.
"""


def as_bias(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The boolean `mask` as a bias to add to scores: 0 where True, minus infinity where False.

    Adding takes a tenth of the time of masking, so each mask is converted once and reused.
    """
    *others, keys = mask.shape
    row = math.ceil(keys / BIAS_ALIGNMENT) * BIAS_ALIGNMENT
    bias = torch.zeros(*others, row, dtype=dtype, device=mask.device)[..., :keys]
    return bias.masked_fill_(~mask, -math.inf)


# Positions (3.5)


class PositionalEncoding(nn.Module):
    """Adds a vector for each position: fixed sinusoids or learned parameters."""

    def __init__(self, max_len: int, d_model: int, *, is_learned: bool) -> None:
        super().__init__()
        if is_learned:
            self.weight = nn.Parameter(torch.zeros(max_len, d_model))
        else:
            waves = torch.from_numpy(sinusoids(max_len, d_model))
            self.register_buffer("weight", waves, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`x` (B, T, D) with positions added: (B, T, D)."""
        return x + self.weight[: x.shape[1]]


# Attention (3.2)


def attention_weights(q: Tensor, k: Tensor, attn_bias: Tensor) -> Tensor:
    """softmax(q kᵀ / √K + bias), (B, H, T, S): each query's distribution over the keys.

    `q` is (B, H, T, K), `k` is (B, H, S, K). `attn_bias` is a mask converted by `as_bias`; it
    broadcasts to (B, H, T, S). A query that may attend to nothing gives NaN.
    """
    assert attn_bias.is_floating_point(), "convert the mask with as_bias first"
    assert attn_bias.shape[-1] == k.shape[-2], "attn_bias needs one column per key"
    # A dot product of K terms has a variance of about K; without scaling, it would saturate the
    # softmax.
    scale = 1 / math.sqrt(q.shape[-1])
    scores = q @ k.mT
    if scores.is_cpu and scores.dtype == torch.bfloat16:
        return bf16_softmax(scores, attn_bias, scale)  # the same result, three times as fast
    return torch.add(attn_bias, scores, alpha=scale).softmax(-1)


class MultiHeadAttention(nn.Module):
    """H attentions in parallel, each over its own projection of queries, keys and values.

    The three input projections are packed into one (3·D, D) matrix, named as in
    nn.MultiheadAttention. Dropout of the attention weights is not in the paper.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D = config.d_model
        self.num_heads = config.num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * D, D))  # filled by `initialize`
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * D))
        self.out_proj = nn.Linear(D, D)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, x: Tensor, attn_bias: Tensor, memory: Tensor | None = None) -> Tensor:
        """Let `x` (B, T, D) attend to `memory` (B, S, D), or to itself without one: (B, T, D).

        `attn_bias` (…, S) is a mask converted by `as_bias`; it broadcasts to (B, H, T, S).
        """
        q, k, v = self.project(x, memory)
        if q.is_cuda:  # a single fused kernel
            rate = self.dropout.p if self.training else 0.0
            heads = F.scaled_dot_product_attention(q, k, v, attn_bias, dropout_p=rate)
        else:
            heads = self.dropout(attention_weights(q, k, attn_bias)) @ v  # (B, H, T, K)
        return self.out_proj(heads.transpose(1, 2).flatten(2))

    def project(self, x: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, K) of `x`; keys and values (B, H, S, K) of `memory`, default `x`."""
        if memory is None:
            q, k, v = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
            return self._split_heads(q), self._split_heads(k), self._split_heads(v)
        D = x.shape[-1]
        q = F.linear(x, self.in_proj_weight[:D], self.in_proj_bias[:D])
        k, v = self.project_memory(memory)
        return self._split_heads(q), k, v

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `memory` (B, S, D), each (B, H, S, K)."""
        D = memory.shape[-1]
        k, v = F.linear(memory, self.in_proj_weight[D:], self.in_proj_bias[D:]).chunk(2, dim=-1)
        return self._split_heads(k), self._split_heads(v)

    def _split_heads(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        return x.view(B, T, self.num_heads, D // self.num_heads).transpose(1, 2)  # (B, H, T, K)


# Layers (3.1 and 3.3), with the norm before or after (Xiong et al. 2020)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,  # not in place: the gradient of a modified view needs three more copies
    "gelu": F.gelu,
}


class Layer(nn.Module):
    """The common parts of encoder and decoder layers: residuals and the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.linear1 = nn.Linear(config.d_model, config.d_ff)
        self.linear2 = nn.Linear(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.activation_dropout = Dropout(config.activation_dropout)
        self.dropout = Dropout(config.dropout)

    def residual(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """`x` (B, T, D) plus the output of `sublayer`, with the norm before or after."""
        if self.is_pre_norm:
            return self.dropout.add_to(x, sublayer(norm(x)))
        return norm(self.dropout.add_to(x, sublayer(x)))

    def feed_forward(self, x: Tensor) -> Tensor:
        """Two linear layers with an activation in between, per position: (B, T, D) to (B, T, D)."""
        hidden = self.activation_dropout(self.activation(self.linear1(x)))  # (B, T, F)
        return self.linear2(hidden)


class EncoderLayer(Layer):
    """Self-attention over the source, then a feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.self_attn = MultiHeadAttention(config)
        self.norm1 = nn.LayerNorm(config.d_model)
        self.norm2 = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, src_bias: Tensor) -> Tensor:
        """Map `x` (B, S, D) under `src_bias` (B, 1, 1, S) to (B, S, D)."""
        x = self.residual(x, self.norm1, lambda y: self.self_attn(y, src_bias))
        return self.residual(x, self.norm2, self.feed_forward)


class DecoderLayer(Layer):
    """Causal self-attention, attention to the memory, then a feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.self_attn = MultiHeadAttention(config)
        self.multihead_attn = MultiHeadAttention(config)
        self.norm1 = nn.LayerNorm(config.d_model)
        self.norm2 = nn.LayerNorm(config.d_model)
        self.norm3 = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, memory: Tensor, tgt_bias: Tensor, src_bias: Tensor) -> Tensor:
        """Map `x` (B, T, D) and `memory` (B, S, D) to (B, T, D).

        `tgt_bias` (T, T) masks self-attention, `src_bias` (B, 1, 1, S) attention to the memory.
        """
        x = self.residual(x, self.norm1, lambda y: self.self_attn(y, tgt_bias))
        x = self.residual(x, self.norm2, lambda y: self.multihead_attn(y, src_bias, memory))
        return self.residual(x, self.norm3, self.feed_forward)


# Encoder and decoder


class Encoder(nn.Module):
    """A stack of encoder layers, and a final norm if configured."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.final_norm else nn.Identity()

    def forward(self, x: Tensor, src_bias: Tensor) -> Tensor:
        """Map `x` (B, S, D) under `src_bias` (B, 1, 1, S) to the memory (B, S, D)."""
        for layer in self.layers:
            x = layer(x, src_bias)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder layers, and a final norm if configured."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.final_norm else nn.Identity()

    def forward(self, x: Tensor, memory: Tensor, tgt_bias: Tensor, src_bias: Tensor) -> Tensor:
        """Map `x` (B, T, D) and `memory` (B, S, D) to (B, T, D); biases as in `DecoderLayer`."""
        for layer in self.layers:
            x = layer(x, memory, tgt_bias, src_bias)
        return self.norm(x)
