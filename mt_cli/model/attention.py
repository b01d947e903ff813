"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, 3.2).

Letters: B batch, T queries, S keys, D d_model, H heads, K head size (D = H·K).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, dropout: nn.Module | None = None) -> Tensor:
    """softmax(q kᵀ / √K) v, per head: each query's mean of the values, weighted by how well the keys match.

    `q` is (B, H, T, K), `k` and `v` are (B, H, S, K). `bias` is a mask converted by `as_bias`; it
    broadcasts to (B, H, T, S). A query that may attend to nothing gives NaN. Returns (B, H, T, K).
    """
    weights = attention_weights(q, k, bias)
    return (weights if dropout is None else dropout(weights)) @ v


def attention_weights(q: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    """softmax(q kᵀ / √K), (B, H, T, S): each row is a distribution over the keys that `bias` allows."""
    assert bias.is_floating_point(), "a mask has to go through as_bias first"
    # Without the division the dot products grow with K and the softmax saturates.
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT  # (B, H, T, S)
    return scores.add_(bias).softmax(-1)


class ScaledDotProductAttention(nn.Module):
    """`attention` as a module, so that hooks can observe it. Dropout applies to the weights."""

    def __init__(self, dropout: nn.Module) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """`q` (B, H, T, K) attends to `k`, `v` (B, H, S, K) where `bias` (…, S) allows: (B, H, T, K)."""
        assert bias.shape[-1] == k.shape[2], "a bias says something of every key"
        return attention(q, k, v, bias, dropout=self.dropout)


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

    def forward(self, x: Tensor, bias: Tensor, *, memory: Tensor | None = None) -> Tensor:
        """`x` (B, T, D) attends to `memory` (B, S, D), or without one to itself: (B, T, D).

        `bias` (…, S) is a mask converted by `as_bias`; it broadcasts to (B, H, T, S).
        """
        if memory is None:
            return self.attend(*self.project_all(x), bias)
        return self.attend(self.project_query(x), *self.project_memory(memory), bias)

    def project_all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of `x` (B, T, D), each (B, H, T, K)."""
        q, k, v = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        return self._split_heads(q), self._split_heads(k), self._split_heads(v)

    def project_query(self, x: Tensor) -> Tensor:
        """Queries of `x` (B, T, D): (B, H, T, K)."""
        D = x.shape[-1]
        return self._split_heads(F.linear(x, self.in_proj_weight[:D], self.in_proj_bias[:D]))

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `memory` (B, S, D), each (B, H, S, K)."""
        D = memory.shape[-1]
        k, v = F.linear(memory, self.in_proj_weight[D:], self.in_proj_bias[D:]).chunk(2, dim=-1)
        return self._split_heads(k), self._split_heads(v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Attention of projected `q` (B, H, T, K) to `k`, `v` (B, H, S, K), heads joined: (B, T, D)."""
        heads = self.attention(q, k, v, bias)  # (B, H, T, K)
        joined: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))
        return joined

    def _split_heads(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        return x.view(B, T, self.num_heads, D // self.num_heads).transpose(1, 2)  # (B, H, T, K)
