"""Greedy and beam search over a next-token function.

Works on token ids and an opaque state; never sees text, vocabularies or modules.
Letters: B sentences, M of them still unfinished, N beams, T length, R rows, V vocabulary.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from mt_cli.decoding import Hyp, penalty
from mt_cli.decoding.rules import Banned, Rules, ban

STEPS_BETWEEN_CHECKS = {"cpu": 1, "cuda": 8, "mps": 8}
"""How often finished sentences may leave the batch. To see which they are, the host waits for a
GPU.
"""
SHARE_THAT_STAYS = 0.05
"""Finished rows stay in the batch until they are more than this share: moving the others costs more
than computing a few.
"""


class SearchState(Protocol):
    """What the step function remembers of each sentence and its beams (one at the start)."""

    def keep(self, rows: Tensor) -> None:
        """Keep only the sentences `rows` (M,), in that order."""
        ...

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `beams[b, n]`; `beams` is (B, N).

        N may exceed the number of present beams, as it does after the first step.
        """
        ...


State = TypeVar("State", bound=SearchState)


Choose = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Chooses the next ids (M,) from the step's output (M, …), the ids so far (M, T) and the sentences
(M,).
"""


def greedy_search(
    step: Callable[[Tensor, State], Tensor], state: State, max_lens: Tensor, rules: Rules
) -> list[list[int]]:
    """Append the most likely token until `eos_id` or the sentence's limit; see `extend_until_end`.

    `step` gives logits (M, 1, V), which are overwritten.
    """
    hide = rules.hiding(max_lens.device)

    def likeliest(logits: Tensor, hyps: Tensor, _rows: Tensor) -> Tensor:
        return argmax(hide(logits, hyps))

    return extend_until_end(step, state, max_lens, likeliest, rules)


def extend_until_end(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lens: Tensor,
    choose: Choose,
    rules: Rules,
) -> list[list[int]]:
    """Extend one hypothesis per sentence by what `choose` returns, until `eos_id` or the sentence's
    limit.

    `step` takes the latest ids (M, 1) and the state. `choose` gets its output without the second
    dimension and has to apply the `rules`. `max_lens` (B,) limits each sentence, `eos_id` not
    counted. Finished sentences leave the batch once they are more than a few; until then, `choose`
    gets them too. Returns B id sequences without `bos_id` and `eos_id`.
    """
    check_every = STEPS_BETWEEN_CHECKS[max_lens.device.type]
    limits = max_lens  # (M,)
    is_live = torch.ones_like(limits, dtype=torch.bool)  # (M,)
    rows = torch.arange(len(limits), device=limits.device)  # (M,): which sentence each live row is
    ids = torch.full_like(limits, rules.bos_id)  # (M,)
    hyps = limits.new_full((len(limits), _longest(limits)), rules.eos_id)  # (M, longest)
    found = hyps.clone()  # (B, longest)
    lowest_limit = min(limits.tolist(), default=0)
    for length in range(hyps.shape[1]):
        ids = choose(step(ids.unsqueeze(1), state).squeeze(1), hyps[:, :length], rows)
        hyps[:, length] = ids
        if (length + 1) % check_every:
            continue
        is_live &= (hyps[:, length + 1 - check_every : length + 1] != rules.eos_id).all(1)
        if length + 1 >= lowest_limit:
            is_live &= length + 1 < limits
        num_live = int(is_live.sum())
        if num_live == 0:
            break
        if len(rows) - num_live <= SHARE_THAT_STAYS * len(rows):
            continue
        live = _compact(is_live)
        found[rows] = hyps
        rows, ids, hyps, limits, is_live = (
            rows[live],
            ids[live],
            hyps[live],
            limits[live],
            is_live[live],
        )
        state.keep(live)
    found[rows] = hyps
    return [
        _until(rules.eos_id, hyp[:limit])
        for hyp, limit in zip(found.tolist(), max_lens.tolist(), strict=True)
    ]


def beam_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lens: Tensor,
    rules: Rules,
    *,
    beam_size: int,
    length_penalty: float = 0.0,
    n_best: int = 1,
) -> list[list[Hyp]]:
    """The `n_best` best hypotheses of each sentence, found with `beam_size` beams, best first.

    Hypotheses are ranked by `score`; `length_penalty` is the alpha of `penalty`.

    At each length, a sentence keeps its most likely continuations, as many as it has beams left.
    One that ends uses up its beam, so a single beam is greedy search. A sentence is done when it
    has no beam left, or when no live beam can still become one of its `n_best`. The upper bound for
    a live beam's score is its present log-probability, which can only fall, divided by the largest
    penalty that its limit allows.

    `step` takes the latest ids (M, N) and the state, which begins with one beam, and gives logits
    (M, N, V). `max_lens` (B,), from 1, limits each sentence, `eos_id` not counted; at its limit a
    beam ends without `eos_id`. Ids that the `rules` forbid keep their probability; it is not shared
    among the others. The logits are overwritten. If fewer than `n_best` hypotheses are found, empty
    ones with a score of minus infinity are added.
    """
    search = _Beams(
        max_lens, beam_size=beam_size, alpha=length_penalty, n_best=n_best, eos_id=rules.eos_id
    )
    ids = torch.full_like(max_lens, rules.bos_id).unsqueeze(1)  # (M, 1), then (M, N)
    forbidden = rules.forbidding(max_lens.device)
    check_every = STEPS_BETWEEN_CHECKS[max_lens.device.type]
    for length in range(_longest(max_lens)):
        logits = step(ids, state).float().flatten(0, 1)  # (M·N, V)
        log_probs, next_ids = top_log_probs(
            logits,
            beam_size,
            forbidden=forbidden(length),
            banned=rules.repeating(search.hyps),
        )  # each (M·N, beam_size)
        shape = (*ids.shape, beam_size)
        beams, ids = search.extend(log_probs.view(shape), next_ids.view(shape))
        if (length + 1) % check_every == 0:
            live = search.drop_finished()
            if len(live) == 0:
                break
            if len(live) < len(beams):
                beams, ids = beams[live], ids[live]
                state.keep(live)
        state.arrange(beams)
    return search.best()


class _Beams:
    """The live beams of the unfinished sentences, and the hypotheses that have ended."""

    def __init__(
        self, max_lens: Tensor, *, beam_size: int, alpha: float, n_best: int, eos_id: int
    ) -> None:
        B, device = len(max_lens), max_lens.device
        self._n_best, self._alpha, self._eos_id = n_best, alpha, eos_id
        self._rows = torch.arange(B, device=device)  # (M,): which sentence each is
        self._limits = max_lens  # (M,)
        self._free = torch.full((B,), beam_size, device=device)  # (M,): beams not yet ended
        self._ranks = torch.arange(beam_size, device=device)
        self._log_probs = torch.zeros(B, 1, device=device)  # (M, N): of live beams, -inf for others
        self._ids = torch.empty(B, 1, 0, dtype=torch.long, device=device)  # (M, N, T)
        # Beams that have not ended are written too, to the last slot: then nothing waits to learn
        # which have. That slot's score stays minus infinity, so it is never chosen.
        slots = beam_size + 1
        self._ended_ids = torch.full((B, slots, _longest(max_lens)), eos_id, device=device)
        self._ended_log_probs = torch.full((B, slots), -torch.inf, device=device)
        self._ended_scores = torch.full((B, slots), -torch.inf, device=device)

    @property
    def hyps(self) -> Tensor:
        """Ids of the live beams so far, (M·N, T)."""
        return self._ids.flatten(0, 1)

    def extend(self, log_probs: Tensor, next_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the live beams by their most likely continuations.

        `next_ids` (M, N, beam_size) are the most likely ids after each beam, `log_probs` their
        log-probabilities. Returns for each new beam the beam that it continues, (M, beam_size), and
        its new id, (M, beam_size).
        """
        beam_size = log_probs.shape[2]
        total = (self._log_probs.unsqueeze(-1) + log_probs).flatten(1)  # (M, N·beam_size)
        best, places = total.topk(beam_size)  # (M, beam_size), the likeliest first
        self._log_probs = best.masked_fill(self._ranks >= self._free.unsqueeze(1), -torch.inf)
        beams, ids = places // beam_size, next_ids.flatten(1).gather(1, places)
        so_far = self._ids.gather(1, beams.unsqueeze(-1).expand(-1, -1, self._ids.shape[-1]))
        self._ids = torch.cat([so_far, ids.unsqueeze(-1)], dim=-1)
        self._end(ids == self._eos_id)
        return beams, ids

    def drop_finished(self) -> Tensor:
        """Drop the sentences that are done; returns the places (M,) of those that are not."""
        ended, _ = self._ended_scores[self._rows].topk(self._n_best)  # (M, n_best)
        upper_bound = self._log_probs.max(-1).values / penalty(self._limits, self._alpha)  # (M,)
        live = _compact(upper_bound > ended[:, -1])
        if len(live) < len(self._rows):
            self._rows, self._limits, self._free = (
                self._rows[live],
                self._limits[live],
                self._free[live],
            )
            self._log_probs, self._ids = self._log_probs[live], self._ids[live]
        return live

    def best(self) -> list[list[Hyp]]:
        """The best hypotheses of each of the B sentences."""
        scores, order = self._ended_scores[:, :-1].topk(self._n_best)  # (B, n_best), the best first
        sentences = torch.arange(len(order), device=order.device).unsqueeze(1)
        columns = (
            self._ended_ids[sentences, order].tolist(),
            scores.tolist(),
            self._ended_log_probs[sentences, order].tolist(),
        )
        return [
            [Hyp(_until(self._eos_id, ids), *numbers) for ids, *numbers in zip(*row, strict=True)]
            for row in zip(*columns, strict=True)
        ]

    def _end(self, is_eos: Tensor) -> None:
        """Move live beams to the ended ones where `is_eos` (M, N) is True or the limit is reached."""
        length = self._ids.shape[-1]
        ends = (is_eos | (self._limits == length).unsqueeze(1)) & (
            self._log_probs > -torch.inf
        )  # (M, N)
        last = self._ended_scores.shape[1] - 1
        slots = (last - 1 - self._free).unsqueeze(1) + ends.cumsum(1)  # (M, N)
        go_on = ~ends
        slots, rows = slots.masked_fill(go_on, last), self._rows.unsqueeze(1)
        self._ended_ids[rows, slots, :length] = self._ids
        self._ended_log_probs[rows, slots] = self._log_probs
        scores = self._log_probs / penalty(length, self._alpha)
        self._ended_scores[rows, slots] = scores.masked_fill(go_on, -torch.inf)
        self._free = self._free - ends.sum(1)
        self._log_probs = self._log_probs.masked_fill(ends, -torch.inf)


def _compact(is_live: Tensor) -> Tensor:
    """Rows that `is_live` (M,) marks; the last of them fill the gaps, so that few rows have to
    move.
    """
    num_live = int(is_live.sum())
    rows = torch.arange(num_live, device=is_live.device)
    if num_live == len(is_live):
        return rows
    rows[~is_live[:num_live]] = num_live + is_live[num_live:].nonzero().squeeze(1)
    return rows


def _longest(max_lens: Tensor) -> int:
    return max(max_lens.tolist(), default=0)


def _until(eos_id: int, ids: list[int]) -> list[int]:
    return ids[: ids.index(eos_id)] if eos_id in ids else ids


# Selection: the part of a search that touches the whole vocabulary, exact

BLOCK = 64
"""Entries of a row that are compared at a time."""


def argmax(scores: Tensor) -> Tensor:
    """The place (R,) of the largest entry of each row of `scores` (R, V), the first of equals."""
    if scores.device.type != "cpu":
        return scores.argmax(-1)
    return torch.from_numpy(scores.detach().float().numpy().argmax(-1))


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest entries of each row of `scores` (R, V), sorted, and their places: both (R,
    k).

    If a row has fewer entries, `-inf` fills up.
    """
    V = scores.shape[1]
    if k == 1:  # the first of equals, as `argmax`
        places = argmax(scores).unsqueeze(1)
        return scores.gather(1, places), places
    if 2 * k * BLOCK > V or scores.is_cuda:  # blocks would not help
        values, places = scores.topk(min(k, V))
        if k > V:
            values, places = F.pad(values, (0, k - V), value=-torch.inf), F.pad(places, (0, k - V))
        return values, places
    blocks = (
        _block_maxima(scores).topk(k, sorted=False).indices
    )  # (R, k): one of the k largest is in each
    places, entries = _open(blocks, scores)
    values, order = entries.topk(k)
    return values, places.gather(1, order)


def top_log_probs(
    logits: Tensor, k: int, *, forbidden: Tensor, banned: Banned | None = None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the `k` likeliest of each row of `logits` (R, V), and their ids: both
    (R, k).

    Two kinds of ids are never returned, but keep their probability: those in `forbidden` (F,) for
    every row, and what is `banned`. May overwrite `logits`.
    """
    if banned is not None or logits.is_cuda:
        log_probs = logits.log_softmax(-1)
        ban(log_probs, banned)
        log_probs.index_fill_(1, forbidden, -torch.inf)
        return top_k(log_probs, k)
    passed_over = logits[:, forbidden]  # (R, F)
    logits.index_fill_(1, forbidden, -torch.inf)
    best, ids = top_k(logits, k)
    peak = torch.cat([best[:, :1], passed_over], dim=-1).amax(
        -1, keepdim=True
    )  # so that exp cannot overflow
    total = logits.sub_(peak).exp_().sum(-1, keepdim=True) + (passed_over - peak).exp_().sum(
        -1, keepdim=True
    )
    return best - (peak + total.log()), ids


def _block_maxima(scores: Tensor) -> Tensor:
    """The largest entry of each block of `scores` (R, V), the last of which may be shorter: (R,
    blocks).
    """
    R, V = scores.shape
    whole = V - V % BLOCK
    maxima = scores[:, :whole].view(R, -1, BLOCK).amax(-1)
    return (
        maxima
        if whole == V
        else torch.cat([maxima, scores[:, whole:].amax(-1, keepdim=True)], dim=-1)
    )


def _open(blocks: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Places and entries of `scores` (R, V) in `blocks` (R, k), both (R, k·BLOCK); `-inf` beyond
    the last.
    """
    V = scores.shape[1]
    within = torch.arange(BLOCK, device=scores.device)
    places = (blocks.unsqueeze(-1) * BLOCK + within).flatten(1)
    if V % BLOCK == 0:
        return places, scores.gather(1, places)
    beyond = places >= V
    places = places.clamp(max=V - 1)
    return places, scores.gather(1, places).masked_fill(beyond, -torch.inf)
