"""Masks. Boolean, and True means "may be attended", everywhere in this project.

What is added to scores in their place is called a bias: `attention.as_bias` makes it.

Knows ids and lengths, never layers.
"""

import torch
from torch import Tensor


def padding_mask(ids: Tensor, *, pad_id: int) -> Tensor:
    """Which positions of `ids` (B, S) are real: boolean (B, S)."""
    return ids != pad_id


def causal_mask(length: int, *, device: torch.device) -> Tensor:
    """Who may see whom in a target: position t sees positions 0 to t. Boolean (T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
