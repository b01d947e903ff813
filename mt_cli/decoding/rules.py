"""Rules on which tokens may follow a hypothesis, whatever the model's scores are.

Letters: R rows, T length, V vocabulary, F forbidden ids, P ids of a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Banned = tuple[Tensor, Tensor]
"""Ids (R, P), and which of them may not follow their row, (R, P).

Picking those out would wait for a GPU.
"""


def mask_(logits: Tensor, banned: Banned | None) -> None:
    """Overwrite with minus infinity what is `banned` in `logits` (R, V)."""
    if banned is not None:
        ids, is_banned = banned
        upper_bounds = torch.full_like(ids, torch.inf, dtype=logits.dtype)
        upper_bounds.masked_fill_(is_banned, -torch.inf)
        logits.scatter_reduce_(1, ids, upper_bounds, "amin")


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

    def forbidden_ids_at(self, device: torch.device) -> Callable[[int], Tensor]:
        """A function that gives the ids (F,) that may not follow a hypothesis of so many ids."""
        later = sorted(set(self.forbidden_ids))
        early = sorted({*later, self.eos_id})
        later_ids = torch.tensor(later, dtype=torch.long, device=device)
        early_ids = torch.tensor(early, dtype=torch.long, device=device)
        return lambda length: early_ids if length < self.min_len else later_ids

    def repeated_ids(self, hyps: Tensor) -> Banned | None:
        """Next ids that would repeat a sequence in `hyps` (R, T); None if there can be none yet."""
        n = self.no_repeat_ngram
        T = hyps.shape[1]
        if not 0 < n <= T:
            return None
        windows = hyps.unfold(1, n, 1)  # (R, T-n+1, n)
        tail = hyps[:, T - n + 1 :].unsqueeze(1)  # (R, 1, n-1)
        return windows[..., -1], (windows[..., :-1] == tail).all(-1)

    def masker(self, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
        """A function that masks in `logits` (R, V), in place, what may not follow `hyps` (R, T)."""
        forbidden_ids = self.forbidden_ids_at(device)

        def mask(logits: Tensor, hyps: Tensor) -> Tensor:
            logits.index_fill_(1, forbidden_ids(hyps.shape[1]), -torch.inf)
            mask_(logits, self.repeated_ids(hyps))
            return logits

        return mask
