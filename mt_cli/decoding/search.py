"""Greedy search over a next-token function.

Works on token ids and an opaque state; never sees text, vocabularies or modules.
Letters: B sentences, N sentences still unfinished, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor


class SearchState(Protocol):
    """What the step function remembers, one row a sentence."""

    def select(self, rows: Tensor) -> Self:
        """The state of `rows` (N,) only, in that order."""
        ...


State = TypeVar("State", bound=SearchState)


def greedy_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lens: Sequence[int],
    *,
    bos_id: int,
    eos_id: int,
    forbidden_ids: Sequence[int] = (),
    device: torch.device | None = None,
) -> list[list[int]]:
    """The likeliest next token, again and again, until `eos_id` or a sentence's limit.

    `step` takes the latest ids (N,) and the state and gives logits (N, V). `max_lens` limits each of the
    B sentences, `eos_id` not counted. `forbidden_ids` are never chosen. Finished rows leave the batch.
    Returns B id sequences without `bos_id` and `eos_id`.
    """
    B = len(max_lens)
    limits = torch.tensor(max_lens, device=device)  # (N,)
    rows = torch.arange(B, device=device)  # (N,): which sentence each live row is
    ids = torch.full((B,), bos_id, device=device)  # (N,)
    hyps = torch.full((B, max(max_lens, default=0)), eos_id, device=device)
    for length in range(hyps.shape[1]):
        logits = step(ids, state)  # (N, V)
        logits[:, list(forbidden_ids)] = -torch.inf
        ids = logits.argmax(-1)
        hyps[rows, length] = ids
        live = ((ids != eos_id) & (length + 1 < limits)).nonzero().squeeze(1)
        if len(live) == 0:
            break
        if len(live) < len(rows):
            rows, ids, limits, state = rows[live], ids[live], limits[live], state.select(live)
    return [_until(eos_id, hyp[:limit]) for hyp, limit in zip(hyps.tolist(), max_lens, strict=True)]


def _until(eos_id: int, ids: list[int]) -> list[int]:
    return ids[: ids.index(eos_id)] if eos_id in ids else ids
