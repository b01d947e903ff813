"""Rules on which tokens may follow a hypothesis, whatever the model's scores are.

Letters: R rows, T length, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rules:
    """Constraints on every hypothesis."""

    bos_id: int
    eos_id: int
    forbidden_ids: Sequence[int] = ()
    """Ids never chosen, unless the rules leave nothing else."""
    no_repeat_ngram: int = 0
    """Length in ids of sequences that may not occur twice in a hypothesis; 0 is no limit."""
    min_len: int = 0
    """Minimum length in ids, unless a sentence's limit is lower."""

    def forbidden(self, length: int) -> list[int]:
        """Ids that may not follow a hypothesis of `length` ids."""
        too_early = {self.eos_id} if length < self.min_len else set()
        return sorted({*self.forbidden_ids, *too_early})

    def repeating(self, hyps: Tensor) -> tuple[Tensor, Tensor]:
        """Next ids that would repeat a sequence in `hyps` (R, T): rows (P,) and ids (P,)."""
        n, T = self.no_repeat_ngram, hyps.shape[1]
        if not 0 < n <= T:
            nothing = hyps.new_empty(0)
            return nothing, nothing
        windows = hyps.unfold(1, n, 1)  # (R, T-n+1, n)
        tail = hyps[:, T - n + 1 :].unsqueeze(1)  # (R, 1, n-1)
        rows, places = (windows[..., :-1] == tail).all(-1).nonzero(as_tuple=True)
        return rows, windows[rows, places, -1]

    def hide(self, logits: Tensor, hyps: Tensor) -> Tensor:
        """Overwrite `logits` (R, V) after `hyps` (R, T) with minus infinity where a rule forbids the id."""
        for i in self.forbidden(hyps.shape[1]):
            logits[:, i] = -torch.inf
        rows, ids = self.repeating(hyps)
        if len(rows):
            logits[rows, ids] = -torch.inf
        return logits
