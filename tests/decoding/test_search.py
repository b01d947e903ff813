"""Greedy and beam search against walks by hand, exhaustive search and a beam kept by hand."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from test_rules import would_repeat
from tiny import BACKENDS, random_ids, randomised, tiny_model
from torch import Tensor

from mt_cli.data.batching import pad_ids
from mt_cli.decoding.search import STEPS_BETWEEN_CHECKS, Hyp, Rules, beam_search, greedy_search
from mt_cli.model.model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

# Few enough words that every sequence can be tried: </s> and three others.
VOCAB_SIZE = 7
WORDS = (4, 5, 6)
FORBIDDEN = (PAD_ID, 1, BOS_ID)
LENGTHS = [1, 5, 3, 2, 4, 5]
SOURCES = [row[:length] for row, length in zip(random_ids(6, 5).tolist(), LENGTHS, strict=True)]
LIMITS = [4, 3, 1, 4, 2, 4]
LONG_LIMITS = [12, 14, 3, 12, 9, 14]

every_backend = pytest.mark.parametrize("backend", BACKENDS)
no_repeats = pytest.mark.parametrize("n", [0, 1, 2, 3])
"""The n of n-grams that may not come twice; 0 permits all."""


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
    n: int = 0,
) -> list[list[int]]:
    rules = Rules(BOS_ID, EOS_ID, FORBIDDEN, no_repeat_ngram=n)
    return greedy_search(model.step, model.start(pad_ids(sources)), torch.tensor(limits), rules)


@torch.no_grad()
def beams(
    model: TranslationModel,
    sources: Sequence[list[int]] = SOURCES,
    limits: Sequence[int] = LIMITS,
    *,
    beam_size: int,
    alpha: float = 0.0,
    n_best: int = 1,
    min_len: int = 0,
    n: int = 0,
) -> list[list[Hyp]]:
    return beam_search(
        model.step,
        model.start(pad_ids(sources)),
        torch.tensor(limits),
        Rules(BOS_ID, EOS_ID, FORBIDDEN, min_len=min_len, no_repeat_ngram=n),
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


@torch.no_grad()
def log_probs_after(model: TranslationModel, src: list[int], ids: Sequence[int]) -> list[float]:
    logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *ids]]))[0, -1]
    log_probs: list[float] = logits.log_softmax(-1).tolist()
    return log_probs


def allowed_after(ids: Sequence[int], n: int) -> list[int]:
    return [i for i in (EOS_ID, *WORDS) if n == 0 or not would_repeat(ids, i, n)]


def greedy_by_hand(model: TranslationModel, src: list[int], limit: int, *, n: int) -> list[int]:
    hyp: list[int] = []
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


@no_repeats
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


@pytest.mark.parametrize("n", [0, 2])
@every_backend
def test_greedy_search_of_a_batch_gives_the_same_as_one_by_one(backend: str, n: int) -> None:
    model = model_of(backend, ends_late=True)
    alone = [
        greedy(model, [src], [limit], n=n)[0]
        for src, limit in zip(SOURCES, LONG_LIMITS, strict=True)
    ]
    assert greedy(model, limits=LONG_LIMITS, n=n) == alone


@dataclass
class Script:
    """A state that says what comes next in each row; notes the sentences that a step computed."""

    rows: list[int]
    position: int = 0
    seen: list[list[int]] = field(default_factory=list)

    def select(self, sentences: Tensor) -> None:
        self.rows = [self.rows[i] for i in sentences.tolist()]

    def reorder(self, parents: Tensor) -> None:
        raise AssertionError("greedy search has one beam")


def follow(lines: Sequence[Sequence[int]], limits: Sequence[int]) -> tuple[list[list[int]], Script]:
    """Search over a step that likes the next id of each of `lines` best; past their ends `</s>`."""

    def step(ids: Tensor, state: Script) -> Tensor:
        state.seen.append(list(state.rows))
        logits = torch.zeros(len(state.rows), 1, 10)
        for row, line in enumerate(state.rows):
            wanted = lines[line][state.position] if state.position < len(lines[line]) else EOS_ID
            logits[row, 0, wanted] = 1
        state.position += 1
        return logits

    script = Script(list(range(len(lines))))
    hyps = greedy_search(step, script, torch.tensor(limits), Rules(BOS_ID, EOS_ID, ()))
    return hyps, script


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([1, 3, 2], [[4], [6, 7, 8], [5, 5]]),
        ([3, 1, 9], [[4, 4, 4], [6], [5, 5, 5]]),
        ([0, 2, 1], [[], [6, 7], [5]]),
        ([0, 0, 0], [[], [], []]),
    ],
)
def test_every_row_has_a_limit_of_its_own(limits: list[int], expected: list[list[int]]) -> None:
    assert follow([[4, 4, 4], [6, 7, 8], [5, 5, 5]], limits)[0] == expected


def test_finished_rows_leave_the_batch() -> None:
    hyps, script = follow([[4], [5, 5, 5], [], [6, 6]], [9, 9, 9, 9])
    assert hyps == [[4], [5, 5, 5], [], [6, 6]]
    assert [sorted(rows) for rows in script.seen] == [[0, 1, 2, 3], [0, 1, 3], [1, 3], [1]]


def test_a_few_finished_rows_wait_for_others_before_they_leave() -> None:
    """Of 40 rows, two may stay."""
    lines = [[4], [4] * 2, [4] * 3, *[[4] * 5] * 37]
    hyps, script = follow(lines, [9] * 40)
    assert hyps == lines
    assert [len(rows) for rows in script.seen] == [40, 40, 40, 40, 37, 37]


def test_no_sentences_give_no_hypotheses() -> None:
    hyps, script = follow([], [])
    assert hyps == []
    assert script.seen == []


# Beam search


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@every_backend
def test_a_beam_wide_enough_finds_the_best_of_all(backend: str, alpha: float) -> None:
    oracle = model_of("torch")
    found = beams(model_of(backend), beam_size=len(WORDS) ** 4 * 2, alpha=alpha, n_best=5)
    for src, limit, hyps in zip(SOURCES, LIMITS, found, strict=True):
        expected = every_hyp(oracle, src, limit, alpha=alpha)[:5]
        assert_same(hyps[: len(expected)], expected)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_one_beam_is_greedy_search(seed: int, alpha: float) -> None:
    model = model_of(seed=seed)
    assert [hyps[0].ids for hyps in beams(model, beam_size=1, alpha=alpha)] == greedy(model)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beam_size", [2, 5])
@pytest.mark.parametrize(("seed", "check_every"), [(1, 1), (2, 1), (1, 4)])
def test_beams_equal_those_kept_by_hand(
    seed: int, check_every: int, beam_size: int, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", check_every)
    model, limits = model_of(seed=seed), [6, 7, 1, 5, 4, 7]
    found = beams(model, limits=limits, beam_size=beam_size, alpha=alpha, n_best=beam_size)
    for src, limit, hyps in zip(SOURCES, limits, found, strict=True):
        expected = beams_by_hand(model, src, limit, beam_size=beam_size, alpha=alpha)
        assert_same([hyp for hyp in hyps if hyp.score > -math.inf], expected)


@pytest.mark.parametrize("n", [1, 2, 3])
@every_backend
def test_beams_without_repeats_equal_those_kept_by_hand(backend: str, n: int) -> None:
    oracle = model_of("torch", ends_late=True)
    found = beams(model_of(backend, ends_late=True), limits=LONG_LIMITS, beam_size=3, n_best=3, n=n)
    for src, limit, hyps in zip(SOURCES, LONG_LIMITS, found, strict=True):
        expected = beams_by_hand(oracle, src, limit, beam_size=3, alpha=0.0, n=n)
        assert_same([hyp for hyp in hyps if hyp.score > -math.inf], expected)


@pytest.mark.parametrize("n_best", [1, 3])
def test_stopping_early_loses_none_of_the_best(n_best: int) -> None:
    model, limits = model_of(), [9] * len(SOURCES)
    few = beams(model, limits=limits, beam_size=4, alpha=1.0, n_best=n_best)
    every = beams(model, limits=limits, beam_size=4, alpha=1.0, n_best=4)
    for some, hyps in zip(few, every, strict=True):
        assert_same(some, hyps[:n_best])


class NothingKept:
    """The state of a model that looks at the last word alone."""

    def select(self, sentences: Tensor) -> None: ...

    def reorder(self, parents: Tensor) -> None: ...


def test_search_goes_on_while_a_longer_hypothesis_can_still_win() -> None:
    # </s> at once: ln 0.6 = -0.51. The other way is certain up to its limit: ln 0.4 / (14/6) =
    # -0.39.
    def step(ids: Tensor, _: NothingKept) -> Tensor:
        logits, is_first = torch.full((*ids.shape, VOCAB_SIZE), -1e9), ids == BOS_ID
        logits[..., EOS_ID] = torch.where(is_first, math.log(0.6), -1e9)
        logits[..., 4] = torch.where(is_first, math.log(0.4), 0.0)
        return logits

    rules, limits = Rules(BOS_ID, EOS_ID, ()), torch.tensor([9])
    ((hyp,),) = beam_search(step, NothingKept(), limits, rules, beam_size=2, length_penalty=1.0)
    assert hyp.ids == [4] * 9
    assert (hyp.score, hyp.log_prob) == pytest.approx((math.log(0.4) * 6 / 14, math.log(0.4)))


@every_backend
def test_beam_search_of_a_batch_gives_the_same_as_one_by_one(backend: str) -> None:
    model = model_of(backend)
    together = beams(model, beam_size=3, n_best=2)
    for src, limit, hyps in zip(SOURCES, LIMITS, together, strict=True):
        assert_same(beams(model, [src], [limit], beam_size=3, n_best=2)[0], hyps)


def test_no_hypothesis_is_shorter_than_asked_for() -> None:
    found = beams(model_of(), limits=[6] * len(SOURCES), beam_size=3, n_best=3, min_len=4)
    assert min(len(hyp.ids) for hyps in found for hyp in hyps) == 4
