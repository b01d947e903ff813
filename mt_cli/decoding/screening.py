"""The largest logit of a large vocabulary, for half of what all logits cost.

Products of 8-bit integers take a quarter of the time of fp32's and are nearly right, and how wrong they can
be is known. So all ids are compared by them, and only those that could be the best, two on average, are
computed again in fp32. The answer is that of fp32, but for ties within its rounding.
Letters: R rows, D d_model, V vocabulary.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mt_cli.decoding.selection import BLOCK

MOST_HIDDEN, MOST_WEIGHT = 127, 63
"""Largest integers. Processors without VNNI add two products in 16 bits: 2 · (127 + 128) · 63 still fits."""
SLACK = 1.001
"""The bound is calculated in fp32 too."""
TINY = 1e-30
NEVER = -(2**30)
"""What stands for the product of a forbidden id; no other comes near it."""


class Screen:
    """The rows of an output layer in fp32, and roughly, as integers.

    With h = ĥ + e and w = ŵ + f, where ĥ and ŵ are the rounded ones, Cauchy and Schwarz bound the error of
    ĥ·ŵ: |h·w - ĥ·ŵ| = |h·f + e·ŵ| ≤ ‖h‖‖f‖ + ‖e‖‖ŵ‖, and ‖e‖ ≤ √D / 2 in units of the last place.
    """

    def __init__(self, weight: Tensor, *, forbidden_ids: Sequence[int] = ()) -> None:
        """Of the output layer's `weight` (V, D), which must not change from now on."""
        V, D = weight.shape
        self._weight = weight.detach().contiguous()
        in_units = self._weight * (MOST_WEIGHT / max(float(self._weight.abs().max()), TINY))
        rounded = in_units.round()
        self._error_of_weight = float((in_units - rounded).norm(dim=1).max())  # the largest ‖f‖
        self._error_of_hidden = math.sqrt(D) / 2 * float(rounded.norm(dim=1).max())
        rough = torch.zeros(-(-V // BLOCK) * BLOCK, D, dtype=torch.int8)  # whole blocks
        rough[:V] = rounded.to(torch.int8)
        self._rough = rough.t()
        self._forbidden = torch.tensor([*forbidden_ids, *range(V, len(rough))], dtype=torch.long)

    def argmax(self, hidden: Tensor) -> Tensor:
        """The id (R,) with the largest logit for each row of `hidden` (R, D), the first of equals."""
        R, V = len(hidden), len(self._weight)
        in_units = hidden * (MOST_HIDDEN / hidden.abs().amax(-1, keepdim=True).clamp_(min=TINY))  # (R, D)
        bound = in_units.norm(dim=1, keepdim=True) * self._error_of_weight + self._error_of_hidden  # (R, 1)
        rough: Tensor = torch._int_mm(in_units.round_().to(torch.int8), self._rough)  # int32
        rough.index_fill_(1, self._forbidden, NEVER)
        blocks = rough.view(R, -1, BLOCK)
        peaks = blocks.amax(-1)  # (R, blocks)
        # One logit may be as much too high as another is too low.
        bar = peaks.amax(-1, keepdim=True) - (bound * (2 * SLACK)).ceil_().int()  # (R, 1)
        bar.clamp_(min=NEVER + 1)
        in_block, block = (peaks >= bar).nonzero(as_tuple=True)
        of_candidate, place = (blocks[in_block, block] >= bar[in_block]).nonzero(as_tuple=True)
        rows = in_block[of_candidate]  # (candidates,)
        ids: Tensor = block[of_candidate] * BLOCK + place
        if len(ids) == R:  # one each
            return ids

        logits = (hidden[rows] * self._weight[ids]).sum(-1)
        best = logits.new_full((R,), -torch.inf).scatter_reduce_(0, rows, logits, "amax")
        ids = ids.masked_fill_(logits < best[rows], V - 1)
        first: Tensor = ids.new_full((R,), V - 1).scatter_reduce_(0, rows, ids, "amin")
        return first
