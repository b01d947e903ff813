"""Rules on which tokens may follow a hypothesis, whatever the model's scores are.

Letters: R rows, T length, V vocabulary, F forbidden ids, P pairs of a row and an id.
"""

from collections.abc import Callable, Sequence
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

    def forbidding(self, device: torch.device) -> Callable[[int], Tensor]:
        """A function that gives the ids (F,) that may not follow a hypothesis of so many ids."""
        later = sorted(set(self.forbidden_ids))
        early = sorted({*later, self.eos_id})
        later_ids, early_ids = (torch.tensor(ids, dtype=torch.long, device=device) for ids in (later, early))
        return lambda length: early_ids if length < self.min_len else later_ids

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

    def hiding(self, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
        """A function that hides what a rule forbids after `hyps` (R, T) from `logits` (R, V).

        It overwrites them with minus infinity there.
        """
        forbidden = self.forbidding(device)

        def hide(logits: Tensor, hyps: Tensor) -> Tensor:
            logits.index_fill_(1, forbidden(hyps.shape[1]), -torch.inf)
            rows, ids = self.repeating(hyps)
            if len(rows):
                logits[rows, ids] = -torch.inf
            return logits

        return hide
