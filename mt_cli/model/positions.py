"""Position encodings: what tells a Transformer the order of its input.

Knows vectors and places, never ids. Letters: B batch, T length, D d_model.
"""

import math

import torch
from torch import Tensor, nn


def sinusoids(max_len: int, d_model: int) -> Tensor:
    """Waves of falling frequency, (max_len, D) (Vaswani et al. 2017, 3.5).

    Even columns hold sin(position / 10000^(i/D)), odd columns the cosine of the same angle.
    """
    position = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)  # (max_len, 1)
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
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
