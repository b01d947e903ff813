"""Encoder and decoder layers, pre- or post-norm (Vaswani et al. 2017, 3.1; Xiong et al. 2020).

Parameter names are those of nn.TransformerEncoderLayer and nn.TransformerDecoderLayer. A bias is a mask
converted by `masks.as_bias`.
Letters: B batch, S source length, T target length, D d_model, F d_ff, H heads, K head size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt_cli.model.attention import MultiHeadAttention
from mt_cli.model.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,  # not in place: the gradient of a changed view takes three more copies
    "gelu": torch.nn.functional.gelu,
}


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
    return MultiHeadAttention(options.d_model, options.num_heads, Dropout(options.attention_dropout))
