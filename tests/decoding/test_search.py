"""Greedy and beam search against walks by hand, exhaustive search and a beam kept by hand."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model
from torch import Tensor

from mt_cli.data.batching import pad_ids
from mt_cli.decoding import Hyp
from mt_cli.decoding.search import (
    STEPS_BETWEEN_CHECKS,
    Rules,
    beam_search,
    greedy_search,
    pad_prefixes,
)
from mt_cli.model.model import DecoderState, TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

# Few enough words that every sequence can be tried: </s> and three others.
VOCAB_SIZE = 7
WORDS = (4, 5, 6)
FORBIDDEN = (PAD_ID, 1, BOS_ID)
LENGTHS = [1, 5, 3, 2, 4, 5]
SOURCES = [row[:length] for row, length in zip(random_ids(6, 5).tolist(), LENGTHS, strict=True)]
LIMITS = [4, 3, 1, 4, 2, 4]
CPU = torch.device("cpu")
PREFIXES = [[], [6, 6], [], [5, 5, 5], [4], [4, 6]]
LONG_LIMITS = [12, 14, 3, 12, 9, 14]


def model_of(
    backend: str = "scratch", *, seed: int = 3, ends_late: bool = False
) -> TranslationModel:
    """A model that repeats itself if it `ends_late`."""
    model = tiny_model(backend, decoder_layers=2, output_bias=True, tgt_vocab_size=VOCAB_SIZE)
    model = randomised(model, seed=seed, std=0.5)
    if ends_late:
        with torch.no_grad():
            model.output.bias[EOS_ID] -= 1.5
    return model


@torch.no_grad()
def greedy(
    model: TranslationModel,
    sources: Sequence[list[int]] = SOURCES,
    limits: Sequence[int] = LIMITS,
    *,
    prefixes: Sequence[list[int]] | None = None,
    n: int = 0,
) -> list[list[int]]:
    return greedy_search(
        model.step,
        model.start(pad_ids(sources)),
        torch.tensor(limits),
        Rules(BOS_ID, EOS_ID, FORBIDDEN, no_repeat_ngram=n),
        prefixes=None if prefixes is None else pad_prefixes(prefixes, CPU),
    )


@torch.no_grad()
def beams(
    model: TranslationModel,
    sources: Sequence[list[int]] = SOURCES,
    limits: Sequence[int] = LIMITS,
    *,
    beam_size: int,
    prefixes: Sequence[list[int]] | None = None,
    alpha: float = 0.0,
    n_best: int = 1,
    n: int = 0,
) -> list[list[Hyp]]:
    return beam_search(
        model.step,
        model.start(pad_ids(sources)),
        torch.tensor(limits),
        Rules(BOS_ID, EOS_ID, FORBIDDEN, no_repeat_ngram=n),
        prefixes=None if prefixes is None else pad_prefixes(prefixes, CPU),
        beam_size=beam_size,
        length_penalty=alpha,
        n_best=n_best,
    )


def assert_same(found: list[Hyp], expected: list[Hyp]) -> None:
    assert [hyp.ids for hyp in found] == [hyp.ids for hyp in expected]
    assert [hyp.score for hyp in found] == pytest.approx([hyp.score for hyp in expected], abs=1e-4)
    log_probs = [hyp.log_prob for hyp in expected]
    assert [hyp.log_prob for hyp in found] == pytest.approx(log_probs, abs=1e-4)


# By hand: over lists, one sentence, the whole prefix computed anew for every token


def would_repeat(ids: Sequence[int], new: int, n: int) -> bool:
    """Whether `new` ends n ids that are in `ids` already: a look back over all of them."""
    after = [*ids, new]
    *before, last = [after[begin : begin + n] for begin in range(len(after) - n + 1)] or [[]]
    return last in before


@torch.no_grad()
def log_probs_after(model: TranslationModel, src: list[int], ids: Sequence[int]) -> list[float]:
    logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *ids]]))[0, -1]
    log_probs: list[float] = logits.log_softmax(-1).tolist()
    return log_probs


def allowed_after(ids: Sequence[int], n: int) -> list[int]:
    return [i for i in (EOS_ID, *WORDS) if n == 0 or not would_repeat(ids, i, n)]


def greedy_by_hand(
    model: TranslationModel, src: list[int], limit: int, *, n: int, prefix: Sequence[int] = ()
) -> list[int]:
    hyp = list(prefix)
    while len(hyp) < limit:
        log_probs = log_probs_after(model, src, hyp)
        best = max(allowed_after(hyp, n), key=log_probs.__getitem__)
        if best == EOS_ID:
            break
        hyp.append(best)
    return hyp


def beams_by_hand(
    model: TranslationModel, src: list[int], limit: int, *, beam_size: int, alpha: float, n: int = 0
) -> list[Hyp]:
    """Without stopping early; what is banned keeps its probability, which goes to no other."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[Hyp] = []
    for length in range(1, limit + 1):
        candidates = []
        for log_prob, ids in live:
            each = log_probs_after(model, src, ids)
            candidates += [(log_prob + each[i], [*ids, i]) for i in allowed_after(ids, n)]
        best = sorted(candidates, reverse=True)[: beam_size - len(ended)]
        live = []
        for log_prob, ids in best:
            if ids[-1] == EOS_ID or length == limit:
                score = log_prob / ((5 + length) / 6) ** alpha
                ended.append(Hyp([i for i in ids if i != EOS_ID], score, log_prob))
            else:
                live.append((log_prob, ids))
    return sorted(ended, key=lambda hyp: -hyp.score)


@torch.no_grad()
def every_hyp(model: TranslationModel, src: list[int], limit: int, *, alpha: float) -> list[Hyp]:
    """All translations there are, ended by `</s>` or by the limit, the best first."""
    hyps = []
    for length in range(limit + 1):
        every = list(itertools.product(WORDS, repeat=length))
        tgt_in = torch.tensor([[BOS_ID, *ids] for ids in every])
        log_probs = model(torch.tensor([src] * len(every)), tgt_in).log_softmax(-1).tolist()
        for ids, at in zip(every, log_probs, strict=True):
            targets = [*ids] if length == limit else [*ids, EOS_ID]
            log_prob = sum(at[place][target] for place, target in enumerate(targets))
            hyps.append(Hyp(list(ids), log_prob / ((5 + len(targets)) / 6) ** alpha, log_prob))
    return sorted(hyps, key=lambda hyp: -hyp.score)


# Greedy search


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize(("backend", "check_every"), [("scratch", 1), ("scratch", 4), ("torch", 1)])
def test_greedy_search_equals_a_brute_force_walk(
    backend: str, check_every: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", check_every)
    oracle = model_of("torch", ends_late=True)
    expected = [
        greedy_by_hand(oracle, src, limit, n=n)
        for src, limit in zip(SOURCES, LONG_LIMITS, strict=True)
    ]
    assert greedy(model_of(backend, ends_late=True), limits=LONG_LIMITS, n=n) == expected


@torch.no_grad()
def test_finished_rows_leave_the_batch() -> None:
    model, sizes = model_of(ends_late=True), list[int]()

    def step(ids: Tensor, state: DecoderState) -> Tensor:
        sizes.append(len(ids))
        return model.step(ids, state)

    rules, limits = Rules(BOS_ID, EOS_ID, FORBIDDEN), torch.tensor(LONG_LIMITS)
    hyps = greedy_search(step, model.start(pad_ids(SOURCES)), limits, rules)
    steps = [min(len(hyp) + 1, limit) for hyp, limit in zip(hyps, LONG_LIMITS, strict=True)]
    assert len({*steps}) > 2
    assert sizes == [sum(step <= each for each in steps) for step in range(1, max(steps) + 1)]


# Beam search


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_beam_wide_enough_finds_the_best_of_all(backend: str, alpha: float) -> None:
    oracle = model_of("torch")
    found = beams(model_of(backend), beam_size=len(WORDS) ** 4 * 2, alpha=alpha, n_best=5)
    for src, limit, hyps in zip(SOURCES, LIMITS, found, strict=True):
        expected = every_hyp(oracle, src, limit, alpha=alpha)[:5]
        assert_same(hyps[: len(expected)], expected)


SEARCHES = [{"beam_size": size, "alpha": alpha} for size in (1, 2, 5) for alpha in (0.0, 0.6, 2.0)]
REPEATLESS: list[dict[str, float]] = [{"beam_size": 3, "alpha": 0.0, "n": n} for n in (1, 2, 3)]


@pytest.mark.parametrize("search", [*SEARCHES, *REPEATLESS], ids=str)
@pytest.mark.parametrize(("backend", "check_every"), [("scratch", 1), ("scratch", 4), ("torch", 1)])
@pytest.mark.parametrize("seed", [1, 2])
def test_beams_equal_those_kept_by_hand(
    backend: str,
    check_every: int,
    seed: int,
    search: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", check_every)
    limits, ends_late = ([6, 7, 1, 5, 4, 7], "n" in search)
    model, oracle = (model_of(each, seed=seed, ends_late=ends_late) for each in (backend, "torch"))
    found = beams(model, limits=limits, n_best=search["beam_size"], **search)
    for src, limit, hyps in zip(SOURCES, limits, found, strict=True):
        expected = beams_by_hand(oracle, src, limit, **search)
        assert_same([hyp for hyp in hyps if hyp.score > -math.inf], expected)


# Prefixes


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize(("backend", "check_every"), [("scratch", 1), ("scratch", 4), ("torch", 1)])
def test_greedy_search_goes_on_from_a_prefix_which_no_rule_is_against(
    backend: str, check_every: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", check_every)
    oracle = model_of("torch", ends_late=True)
    expected = [
        greedy_by_hand(oracle, src, limit, n=n, prefix=prefix)
        for src, limit, prefix in zip(SOURCES, LONG_LIMITS, PREFIXES, strict=True)
    ]
    model = model_of(backend, ends_late=True)
    assert greedy(model, limits=LONG_LIMITS, prefixes=PREFIXES, n=n) == expected
    of_one_beam = beams(model, limits=LONG_LIMITS, prefixes=PREFIXES, beam_size=1, n=n)
    assert [best.ids for (best,) in of_one_beam] == expected


@torch.no_grad()
@pytest.mark.parametrize(
    "prefixes", [PREFIXES, [[5], [4, 6], [], [6, 4, 5], [6], [5, 5]], [[4]] * 6]
)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_beam_wide_enough_finds_the_best_of_all_that_begin_with_a_prefix(
    backend: str, alpha: float, prefixes: list[list[int]]
) -> None:
    limits = [4, 4, 2, 4, 4, 4]
    oracle = model_of("torch")
    found = beams(
        model_of(backend),
        limits=limits,
        prefixes=prefixes,
        beam_size=len(WORDS) ** 4 * 2,
        alpha=alpha,
        n_best=5,
    )
    for src, limit, prefix, hyps in zip(SOURCES, limits, prefixes, found, strict=True):
        tgt_in = torch.tensor([[BOS_ID, *prefix]])
        at = oracle(torch.tensor([src]), tgt_in)[0].log_softmax(-1)
        of_prefix = sum(at[place, token_id].item() for place, token_id in enumerate(prefix))
        expected = []
        for hyp in every_hyp(oracle, src, limit, alpha=0.0):
            if hyp.ids[: len(prefix)] == prefix:
                length = min(len(hyp.ids) + 1, limit)
                rest = hyp.log_prob - of_prefix
                expected.append(Hyp(hyp.ids, rest / ((5 + length) / 6) ** alpha, rest))
        expected = sorted(expected, key=lambda hyp: -hyp.score)[:5]
        assert_same(hyps[: len(expected)], expected)
