"""Greedy search, beam search and sampling over a next-token function.

Works on token ids and an opaque state; never sees text, vocabularies or modules.
Letters: B sentences, M of them still unfinished, N beams, T length, R rows, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from mt_cli.decoding import Hyp, Ids, wu_length_penalty

Banned = tuple[Tensor, Tensor]
"""Ids (R, P), and a mask (R, P) of those that must not follow their row.

Selecting them by the mask would wait for a GPU.
"""


def mask_(logits: Tensor, banned: Banned | None) -> None:
    """Set the `banned` entries of `logits` (R, V) to minus infinity."""
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
    """Ids never chosen, unless nothing else is allowed."""
    no_repeat_ngram: int = 0
    """Length in ids of sequences that must not occur twice in a hypothesis; 0 is off."""

    def forbidden_on(self, device: torch.device) -> Tensor:
        """`forbidden_ids` (F,) as a tensor."""
        return torch.tensor(self.forbidden_ids, dtype=torch.long, device=device)

    def repeated_ids(self, hyps: Tensor) -> Banned | None:
        """Next ids that would repeat a sequence in `hyps` (R, T); None if `hyps` are too short."""
        n = self.no_repeat_ngram
        T = hyps.shape[1]
        if not 0 < n <= T:
            return None
        windows = hyps.unfold(1, n, 1)  # (R, T-n+1, n)
        tail = hyps[:, T - n + 1 :].unsqueeze(1)  # (R, 1, n-1)
        return windows[..., -1], (windows[..., :-1] == tail).all(-1)

    def masker(self, device: torch.device) -> Callable[[Tensor, list[Tensor]], Tensor]:
        """A function that masks `logits` (R, V) in place, given the ids so far.

        These are a list with (R,) for each position.
        """
        forbidden_ids = self.forbidden_on(device)

        def mask(logits: Tensor, so_far: list[Tensor]) -> Tensor:
            logits.index_fill_(1, forbidden_ids, -torch.inf)
            if self.no_repeat_ngram and so_far:
                mask_(logits, self.repeated_ids(torch.stack(so_far, 1)))
            return logits

        return mask


BLOCK = 64
"""Block size for finding the largest entries of a row."""


def argmax(scores: Tensor) -> Tensor:
    """The index (R,) of the largest entry in each row of `scores` (R, V); ties go to the first."""
    if scores.device.type != "cpu":
        return scores.argmax(-1)
    # NumPy's argmax uses SIMD and takes a third of the time of PyTorch's.
    return torch.from_numpy(scores.detach().float().numpy().argmax(-1))


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest entries of each row of `scores` (R, V), sorted, and their indices.

    Both are (R, k); if a row has fewer entries, it is padded with `-inf`.
    """
    V = scores.shape[1]
    if k == 1:  # breaks ties as `argmax` does
        places = argmax(scores).unsqueeze(1)
        return scores.gather(1, places), places
    if 2 * k * BLOCK > V or scores.is_cuda:  # blocks would not help
        values, places = scores.topk(min(k, V))
        if k > V:
            values = F.pad(values, (0, k - V), value=-torch.inf)
            places = F.pad(places, (0, k - V))
        return values, places
    # The k largest entries are in the k blocks with the largest maxima.
    blocks = _block_maxima(scores).topk(k, sorted=False).indices  # (R, k)
    places, entries = _entries_of_blocks(blocks, scores)
    values, order = entries.topk(k)
    return values, places.gather(1, order)


def top_log_probs(
    logits: Tensor, k: int, *, forbidden: Tensor, banned: Banned | None = None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the `k` likeliest ids in each row of `logits` (R, V), and these ids.

    Both are (R, k). Two kinds of ids get minus infinity, but keep their share: those in
    `forbidden` (F,) for every row, and the `banned` ones. May overwrite `logits`.
    """
    if banned is not None or logits.is_cuda:
        log_probs = logits.log_softmax(-1)
        mask_(log_probs, banned)
        log_probs.index_fill_(1, forbidden, -torch.inf)
        return top_k(log_probs, k)
    passed_over = logits[:, forbidden]  # (R, F)
    logits.index_fill_(1, forbidden, -torch.inf)
    best, ids = top_k(logits, k)
    # Subtract the peak so that exp cannot overflow.
    peak = torch.cat([best[:, :1], passed_over], dim=-1).amax(-1, keepdim=True)
    total = logits.sub_(peak).exp_().sum(-1, keepdim=True)
    total = total + (passed_over - peak).exp_().sum(-1, keepdim=True)
    return best - (peak + total.log()), ids


def _block_maxima(scores: Tensor) -> Tensor:
    """The maximum of each block of `scores` (R, V), (R, blocks); the last block may be shorter."""
    R, V = scores.shape
    whole = V - V % BLOCK
    maxima = scores[:, :whole].view(R, -1, BLOCK).amax(-1)
    if whole == V:
        return maxima
    return torch.cat([maxima, scores[:, whole:].amax(-1, keepdim=True)], dim=-1)


def _entries_of_blocks(blocks: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and entries of `scores` (R, V) in `blocks` (R, k), both (R, k·BLOCK).

    Entries beyond the end are `-inf`.
    """
    V = scores.shape[1]
    within = torch.arange(BLOCK, device=scores.device)
    places = (blocks.unsqueeze(-1) * BLOCK + within).flatten(1)
    if V % BLOCK == 0:
        return places, scores.gather(1, places)
    beyond = places >= V
    places = places.clamp(max=V - 1)
    return places, scores.gather(1, places).masked_fill(beyond, -torch.inf)


STEPS_BETWEEN_CHECKS = {"cpu": 1, "cuda": 8, "mps": 8}
"""Steps between checks for finished sentences; each check makes the host wait for a GPU."""
SHARE_THAT_STAYS = 0.05
"""In greedy search, finished sentences are removed only above this share: moving the others also
costs time.
"""


class SearchState(Protocol):
    """The step function's state for each sentence and its beams (one at the start)."""

    def select(self, sentences: Tensor) -> None:
        """Keep only `sentences` (M,), in that order."""
        ...

    def reorder(self, parents: Tensor) -> None:
        """Let beam n of sentence b continue its current beam `parents[b, n]`; (B, N).

        N may exceed the number of current beams, as it does after the first step.
        """
        ...


NONE = -1
"""Padding after a prefix that is shorter than others."""


def pad_prefixes(prefixes: Sequence[Ids], device: torch.device) -> Tensor:
    """The `prefixes` as a tensor (B, P), padded with `NONE`."""
    longest = max(map(len, prefixes), default=0)
    rows = [[*prefix, *[NONE] * (longest - len(prefix))] for prefix in prefixes]
    return torch.tensor(rows, dtype=torch.long, device=device).view(len(rows), longest)


Step = Callable[[Tensor, Any], Tensor]
"""Returns logits (M, N, V) after the latest ids (M, N) of the beams, and advances the state."""
ChooseNext = Callable[[Tensor, list[Tensor], Tensor], Tensor]
"""Returns the next ids (M,) for logits (M, V), the T ids (M,) so far, and the sentences (M,)."""


def greedy_search(
    step: Step,
    state: SearchState,
    max_lens: Tensor,
    rules: Rules,
    *,
    prefixes: Tensor | None = None,
    choose: ChooseNext | None = None,
) -> list[list[int]]:
    """Append the likeliest token, or the one from `choose`, until `eos_id` or the limit.

    `step` takes the latest ids (M, 1) and the state, and returns logits (M, 1, V), which are
    overwritten. `choose` gets them without the second dimension and must apply the `rules`.
    `max_lens` (B,) limits each sentence, without `eos_id`. Hypotheses begin with `prefixes`, which
    must be shorter (see `pad_prefixes`). Finished sentences leave the batch once there are more
    than a few; until then, `choose` gets them too. Returns B id sequences without `bos_id` and
    `eos_id`.
    """
    if choose is None:
        mask = rules.masker(max_lens.device)

        def choose(logits: Tensor, so_far: list[Tensor], _rows: Tensor) -> Tensor:
            return argmax(mask(logits, so_far))

    B = len(max_lens)
    check_every = STEPS_BETWEEN_CHECKS[max_lens.device.type]
    limits = max_lens  # (M,)
    lowest_limit = min(limits.tolist(), default=0)
    rows = torch.arange(B, device=limits.device)  # (M,): the sentence of each live row
    has_ended = torch.zeros_like(limits, dtype=torch.bool)  # (M,)
    ids = torch.full_like(limits, rules.bos_id)  # (M,)
    so_far: list[Tensor] = []  # the ids of the live rows at each position, (M,)
    found = limits.new_full((B, _longest(limits)), rules.eos_id)  # (B, longest)
    for length in range(1, found.shape[1] + 1):
        ids = choose(step(ids.unsqueeze(1), state).squeeze(1), so_far, rows)
        if prefixes is not None and length <= prefixes.shape[1]:
            prefix_ids = prefixes[rows, length - 1]
            ids = ids.where(prefix_ids == NONE, prefix_ids)
        so_far.append(ids)
        has_ended |= ids == rules.eos_id
        if length >= lowest_limit:
            has_ended |= limits <= length
        if length % check_every:
            continue
        num_ended = sum(has_ended.tolist())
        if num_ended == len(rows):
            break
        if num_ended <= SHARE_THAT_STAYS * len(rows):
            continue
        kept = _compacted_rows(~has_ended)
        hyps = torch.stack(so_far, 1)
        found[rows, :length] = hyps
        so_far = list(hyps[kept].unbind(1))
        rows = rows[kept]
        ids = ids[kept]
        limits = limits[kept]
        has_ended = has_ended[kept]
        state.select(kept)
    if so_far:
        found[rows, : len(so_far)] = torch.stack(so_far, 1)
    return [
        _until(rules.eos_id, hyp[:limit])
        for hyp, limit in zip(found.tolist(), max_lens.tolist(), strict=True)
    ]


def beam_search(
    step: Step,
    state: SearchState,
    max_lens: Tensor,
    rules: Rules,
    *,
    beam_size: int,
    prefixes: Tensor | None = None,
    length_penalty: float = 0.0,
    n_best: int = 1,
) -> list[list[Hyp]]:
    """The `n_best` best hypotheses of each sentence, found with `beam_size` beams, best first.

    Hypotheses are ranked by `score`; `length_penalty` is the alpha of `wu_length_penalty`.

    At each length, a sentence keeps its most likely continuations, one per remaining beam. A
    hypothesis that ends uses up its beam, so a single beam is greedy search. A sentence is done
    when it has no beam left, or when no live beam can still become one of its `n_best`. The upper
    bound for a live beam's score is its current log-probability, which can only fall, divided by
    the largest penalty within its limit.

    `step` takes the latest ids (M, N) and the state, which begins with one beam, and returns logits
    (M, N, V), which are overwritten. `max_lens` (B,), from 1, limits each sentence, without
    `eos_id`; at its limit, a beam ends without `eos_id`. Hypotheses begin with `prefixes`, which
    must be shorter than their limits (see `pad_prefixes`) and count as certain: log-probabilities
    are those of the rest. Ids that the `rules` forbid keep their probability; it is not
    redistributed. If fewer than `n_best` hypotheses are found, empty ones with a score of minus
    infinity are added.
    """
    search = _Beams(
        max_lens, beam_size=beam_size, alpha=length_penalty, n_best=n_best, eos_id=rules.eos_id
    )
    ids = torch.full_like(max_lens, rules.bos_id).unsqueeze(1)  # (M, 1), then (M, N)
    if prefixes is None:
        prefixes = max_lens.new_empty(len(max_lens), 0)
    shortest_prefix = sum((prefixes != NONE).all(0).tolist())
    forbidden_ids = rules.forbidden_on(max_lens.device)
    check_every = STEPS_BETWEEN_CHECKS[max_lens.device.type]
    for length in range(_longest(max_lens)):
        num_beams = 1 if length < shortest_prefix else beam_size
        logits = step(ids, state).float().flatten(0, 1)  # (M·N, V)
        # Each (M·N, num_beams)
        log_probs, next_ids = top_log_probs(
            logits,
            num_beams,
            forbidden=forbidden_ids,
            banned=rules.repeated_ids(search.hyps),
        )
        log_probs = log_probs.view(*ids.shape, num_beams)
        next_ids = next_ids.view(*ids.shape, num_beams)
        if length < prefixes.shape[1]:
            log_probs, next_ids = _follow(prefixes[search.rows, length], log_probs, next_ids)
        parents, ids = search.extend(log_probs, next_ids)
        if (length + 1) % check_every == 0:
            kept = search.drop_finished()
            if len(kept) == 0:
                break
            if len(kept) < len(parents):
                parents = parents[kept]
                ids = ids[kept]
                state.select(kept)
        state.reorder(parents)
    return search.best()


def _follow(prefix_ids: Tensor, log_probs: Tensor, next_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Make `prefix_ids` (M,) the only, certain choice in `log_probs` and `next_ids` (M, N, K).

    Sentences whose prefix has ended are unchanged.
    """
    prefix_ids = prefix_ids.view(-1, 1, 1)
    certain = torch.full_like(log_probs[0, 0], -torch.inf)  # (K,)
    certain[0] = 0
    is_free = prefix_ids == NONE
    return log_probs.where(is_free, certain), next_ids.where(is_free, prefix_ids)


class _Beams:
    """The live beams of the unfinished sentences, and the hypotheses that have ended."""

    def __init__(
        self, max_lens: Tensor, *, beam_size: int, alpha: float, n_best: int, eos_id: int
    ) -> None:
        B = len(max_lens)
        device = max_lens.device
        self._n_best = n_best
        self._alpha = alpha
        self._eos_id = eos_id
        self.rows = torch.arange(B, device=device)  # (M,): the sentence of each row
        self._limits = max_lens  # (M,)
        # (M,): beams that have not ended
        self._num_live = torch.full((B,), beam_size, device=device)
        self._ranks = torch.arange(beam_size, device=device)
        self._log_probs = torch.zeros(B, 1, device=device)  # (M, N): of live beams, -inf for others
        self._ids = torch.empty(B, 1, 0, dtype=torch.long, device=device)  # (M, N, T)
        # Beams that have not ended are also written, to the last slot, so the host need not wait to
        # learn which ones ended. That slot's score stays minus infinity, so it is never chosen.
        slots = beam_size + 1
        self._ended_ids = torch.full((B, slots, _longest(max_lens)), eos_id, device=device)
        self._ended_log_probs = torch.full((B, slots), -torch.inf, device=device)
        self._ended_scores = torch.full((B, slots), -torch.inf, device=device)

    @property
    def hyps(self) -> Tensor:
        """Ids of the live beams so far, (M·N, T)."""
        return self._ids.flatten(0, 1)

    def extend(self, log_probs: Tensor, next_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the live beams with their most likely continuations.

        `next_ids` (M, N, K) are the K most likely ids after each beam, and `log_probs` their
        log-probabilities; K is the number of new beams. Returns, for each new beam, the beam that
        it continues, (M, K), and its new id, (M, K).
        """
        K = log_probs.shape[2]
        total = (self._log_probs.unsqueeze(-1) + log_probs).flatten(1)  # (M, N·K)
        best, flat_indices = total.topk(K)  # (M, K), the likeliest first
        is_beyond = self._ranks[:K] >= self._num_live.unsqueeze(1)
        self._log_probs = best.masked_fill(is_beyond, -torch.inf)
        parents = flat_indices // K
        ids = next_ids.flatten(1).gather(1, flat_indices)
        so_far = self._ids.gather(1, parents.unsqueeze(-1).expand(-1, -1, self._ids.shape[-1]))
        self._ids = torch.cat([so_far, ids.unsqueeze(-1)], dim=-1)
        self._record_ended(ids == self._eos_id)
        return parents, ids

    def drop_finished(self) -> Tensor:
        """Drop finished sentences; returns the indices (M,) of the others."""
        ended, _ = self._ended_scores[self.rows].topk(self._n_best)  # (M, n_best)
        longest_penalty = wu_length_penalty(self._limits, self._alpha)
        upper_bound = self._log_probs.max(-1).values / longest_penalty  # (M,)
        kept = _compacted_rows(upper_bound > ended[:, -1])
        if len(kept) < len(self.rows):
            self.rows = self.rows[kept]
            self._limits = self._limits[kept]
            self._num_live = self._num_live[kept]
            self._log_probs = self._log_probs[kept]
            self._ids = self._ids[kept]
        return kept

    def best(self) -> list[list[Hyp]]:
        """The best hypotheses of each of the B sentences."""
        scores, order = self._ended_scores[:, :-1].topk(self._n_best)  # (B, n_best), the best first
        sentences = torch.arange(len(order), device=order.device).unsqueeze(1)
        all_ids = self._ended_ids[sentences, order].tolist()
        all_log_probs = self._ended_log_probs[sentences, order].tolist()
        found = []
        for of_sentence in zip(all_ids, scores.tolist(), all_log_probs, strict=True):
            hyps = []
            for ids, score, log_prob in zip(*of_sentence, strict=True):
                hyps.append(Hyp(_until(self._eos_id, ids), score, log_prob))
            found.append(hyps)
        return found

    def _record_ended(self, is_eos: Tensor) -> None:
        """Record beams that end: where `is_eos` (M, N) is true, or at the limit."""
        length = self._ids.shape[-1]
        is_at_limit = (self._limits == length).unsqueeze(1)
        has_ended = (is_eos | is_at_limit) & (self._log_probs > -torch.inf)  # (M, N)
        last = self._ended_scores.shape[1] - 1
        slots = (last - 1 - self._num_live).unsqueeze(1) + has_ended.cumsum(1)  # (M, N)
        slots = slots.masked_fill(~has_ended, last)
        rows = self.rows.unsqueeze(1)
        self._ended_ids[rows, slots, :length] = self._ids
        self._ended_log_probs[rows, slots] = self._log_probs
        scores = self._log_probs / wu_length_penalty(length, self._alpha)
        self._ended_scores[rows, slots] = scores.masked_fill(~has_ended, -torch.inf)
        self._num_live = self._num_live - has_ended.sum(1)
        self._log_probs = self._log_probs.masked_fill(has_ended, -torch.inf)


def _compacted_rows(is_live: Tensor) -> Tensor:
    """The live rows by `is_live` (M,); the last ones fill the gaps, so that few rows move."""
    num_live = sum(is_live.tolist())
    rows = torch.arange(num_live, device=is_live.device)
    if num_live == len(is_live):
        return rows
    rows[~is_live[:num_live]] = num_live + is_live[num_live:].nonzero().squeeze(1)
    return rows


def _longest(max_lens: Tensor) -> int:
    return max(max_lens.tolist(), default=0)


def _until(eos_id: int, ids: list[int]) -> list[int]:
    return ids[: ids.index(eos_id)] if eos_id in ids else ids


# Sampling

MIN_TEMPERATURE = 1e-6
"""Lower values would overflow fp32; this one already draws only the likeliest token."""


def sample_search(
    step: Step,
    state: SearchState,
    draws: Tensor,
    max_lens: Tensor,
    rules: Rules,
    *,
    prefixes: Tensor | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    length_penalty: float = 0.0,
) -> list[Hyp]:
    """A random hypothesis of each sentence, drawn token by token; see `greedy_search`.

    `draws` (B, longest limit) are uniform in [0, 1), one per token. A sentence's hypothesis depends
    only on its own draws, not on the rest of the batch. `temperature` divides the logits: values
    below 1 favour likely tokens. `top_k` and `top_p` are as in `sample_ids`. Log-probabilities are
    the model's, as in `beam_search`: neither `rules` nor sampling change them. `length_penalty` is
    the alpha of `wu_length_penalty`, which divides the scores. `prefixes` are as in `beam_search`.
    """
    device = max_lens.device
    log_probs = torch.zeros(len(max_lens), device=device)
    is_live = torch.ones(len(max_lens), dtype=torch.bool, device=device)
    given = torch.zeros_like(max_lens) if prefixes is None else (prefixes != NONE).sum(1)  # (B,)
    mask = rules.masker(device)

    def choose(logits: Tensor, so_far: list[Tensor], rows: Tensor) -> Tensor:
        length = len(so_far)
        logits = logits.float()
        normalizer = logits.logsumexp(-1)
        logits = mask(logits, so_far)
        scaled = logits / max(temperature, MIN_TEMPERATURE)
        ids = sample_ids(scaled, draws[rows, length], k=top_k, p=top_p)
        added = logits.gather(1, ids.unsqueeze(1)).squeeze(1) - normalizer
        is_drawn = (given[rows] <= length) & (length < max_lens[rows])
        log_probs[rows] += added.where(is_live[rows] & is_drawn, 0.0)
        is_live[rows] &= (ids != rules.eos_id) | (length < given[rows])
        return ids

    hyps = greedy_search(step, state, max_lens, rules, prefixes=prefixes, choose=choose)
    return [
        Hyp(ids, log_prob / wu_length_penalty(min(len(ids) + 1, limit), length_penalty), log_prob)
        for ids, log_prob, limit in zip(hyps, log_probs.tolist(), max_lens.tolist(), strict=True)
    ]


def sample_ids(logits: Tensor, draws: Tensor, *, k: int = 0, p: float = 1.0) -> Tensor:
    """Draw an id from each row of `logits` (R, V): the first whose running sum exceeds the draw.

    Draws only from the `k` likeliest ids (Fan et al. 2018; 0 is all), and of these from the fewest
    with a total probability of `p` (Holtzman et al. 2020). With such a limit, ids are sorted by
    probability. `draws` (R,) are in [0, 1). Returns (R,).
    """
    if k == 0 and p == 1:  # skip sorting, which is slow
        return _inverse_cdf(logits.softmax(-1), draws).squeeze(1)
    k = min(k or logits.shape[1], logits.shape[1])
    values, ids = top_k(logits, k)  # both (R, k)
    probs = values.softmax(-1)
    before = probs.cumsum(-1) - probs  # (R, k): probability of all likelier tokens
    too_far = before >= p
    too_far[:, 0] = False  # the likeliest id may always be drawn
    return ids.gather(1, _inverse_cdf(probs.masked_fill(too_far, 0.0), draws)).squeeze(1)


def _inverse_cdf(probs: Tensor, draws: Tensor) -> Tensor:
    """First index (R, 1) where the running sum of `probs` (R, V) exceeds `draws` (R,) · total."""
    reached = probs.cumsum(-1)
    total = reached[:, -1:]
    # Rounding must not raise a target to the total, which no running sum exceeds.
    below_total = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(draws.unsqueeze(1) * total, below_total)
    return (reached <= target).sum(-1, keepdim=True)
