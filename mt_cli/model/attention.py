"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, 3.2).

Letters: B batch, T queries, S keys, D d_model, H heads, K head size (D = H·K).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.model.fused import biased_softmax


def attention_weights(q: Tensor, k: Tensor, attn_bias: Tensor) -> Tensor:
    """softmax(q kᵀ / √K), (B, H, T, S): each row is a distribution over the keys that `attn_bias` allows.

    `q` is (B, H, T, K), `k` is (B, H, S, K). `attn_bias` is a mask converted by `as_bias`; it broadcasts to
    (B, H, T, S). A query that may attend to nothing gives NaN.
    """
    assert attn_bias.is_floating_point(), "a mask has to go through as_bias first"
    # A dot product of K terms has a variance of about K; undivided, it would saturate the softmax.
    return biased_softmax(q @ k.mT, attn_bias, scale=1 / math.sqrt(q.shape[-1]))


class ScaledDotProductAttention(nn.Module):
    """softmax(q kᵀ / √K) v, per head: each query's mean of the values, weighted by how well the keys match.

    A module, so that hooks can observe it. Dropout applies to the weights.
    """

    def __init__(self, dropout: nn.Module) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor) -> Tensor:
        """`q` (B, H, T, K) attends to `k`, `v` (B, H, S, K) where `attn_bias` (…, S) allows: (B, H, T, K)."""
        assert attn_bias.shape[-1] == k.shape[-2], "attn_bias needs one column for each key"
        mean: Tensor = self.dropout(attention_weights(q, k, attn_bias)) @ v
        return mean


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each over its own projection of queries, keys and values.

    The three input projections are packed in one (3·D, D) matrix, named as in nn.MultiheadAttention.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: nn.Module) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * d_model, d_model))  # filled by `initialise`
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj = nn.Linear(d_model, d_model)
        self.attention = ScaledDotProductAttention(dropout)

    def forward(self, x: Tensor, attn_bias: Tensor, *, memory: Tensor | None = None) -> Tensor:
        """`x` (B, T, D) attends to `memory` (B, S, D), or without one to itself: (B, T, D).

        `attn_bias` (…, S) is a mask converted by `as_bias`; it broadcasts to (B, H, T, S).
        """
        D = x.shape[-1]
        if memory is None:
            projected = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
            q, k, v = (self._split_heads(each) for each in projected)
        else:
            q = self._split_heads(F.linear(x, self.in_proj_weight[:D], self.in_proj_bias[:D]))
            k, v = self.project_memory(memory)
        heads = self.attention(q, k, v, attn_bias)  # (B, H, T, K)
        joined: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))
        return joined

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `memory` (B, S, D), each (B, H, S, K)."""
        D = memory.shape[-1]
        k, v = F.linear(memory, self.in_proj_weight[D:], self.in_proj_bias[D:]).chunk(2, dim=-1)
        return self._split_heads(k), self._split_heads(v)

    def _split_heads(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        return x.view(B, T, self.num_heads, D // self.num_heads).transpose(1, 2)  # (B, H, T, K)
