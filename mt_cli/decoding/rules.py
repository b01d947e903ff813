"""Which tokens a hypothesis may go on with, whatever the model thinks of them.

Letters: R rows, T length, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rules:
    """What every hypothesis has to keep to."""

    bos_id: int
    eos_id: int
    forbidden_ids: Sequence[int] = ()
    """Never chosen, unless the rules leave nothing else."""
    no_repeat_ngram: int = 0
    """No id is chosen that would repeat so many ids of the hypothesis; 0 lets all be."""
    min_len: int = 0
    """Fewest ids, unless a sentence's limit is lower."""

    def forbidden(self, length: int) -> list[int]:
        """What no hypothesis of `length` ids may go on with."""
        too_early = {self.eos_id} if length < self.min_len else set()
        return sorted({*self.forbidden_ids, *too_early})

    def repeating(self, hyps: Tensor) -> tuple[Tensor, Tensor]:
        """What each of `hyps` (R, T) may not go on with: its row and an id, each (P,)."""
        return repeating(hyps, self.no_repeat_ngram)

    def hide(self, logits: Tensor, hyps: Tensor) -> Tensor:
        """`logits` (R, V) after `hyps` (R, T), overwritten with minus infinity where these rules say no."""
        for i in self.forbidden(hyps.shape[1]):
            logits[:, i] = -torch.inf
        rows, ids = self.repeating(hyps)
        if len(rows):
            logits[rows, ids] = -torch.inf
        return logits


def repeating(hyps: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Where the next id would repeat `n` successive ids of `hyps` (R, T): rows (P,), and ids (P,).

    With an `n` of 0 there is nothing to repeat.
    """
    T = hyps.shape[1]
    if not 0 < n <= T:
        nothing = hyps.new_empty(0)
        return nothing, nothing
    windows = hyps.unfold(1, n, 1)  # (R, T-n+1, n)
    tail = hyps[:, T - n + 1 :].unsqueeze(1)  # (R, 1, n-1)
    rows, places = (windows[..., :-1] == tail).all(-1).nonzero(as_tuple=True)
    return rows, windows[rows, places, -1]
