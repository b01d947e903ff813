"""Masks. Boolean, and True means "may be attended", everywhere in this project.

A bias is a mask in the form that is added to scores; `as_bias` converts one.

Knows ids and lengths, never layers.
"""

import math

import torch
from torch import Tensor


def padding_mask(ids: Tensor, *, pad_id: int) -> Tensor:
    """Which positions of `ids` (B, S) are real: boolean (B, S)."""
    return ids != pad_id


def causal_mask(length: int, *, device: torch.device) -> Tensor:
    """Who may see whom in a target: position t sees positions 0 to t. Boolean (T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def as_bias(mask: Tensor) -> Tensor:
    """Convert the boolean `mask` to a term for the scores: 0 where True, minus infinity where False.

    Adding takes a tenth of the time of masking, so each mask is converted once and used often.
    """
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -math.inf)
