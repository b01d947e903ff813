"""Beam search against exhaustive search, greedy search and a beam kept by hand."""

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model
from torch import Tensor

from mt_cli.data.batching import pad_ids
from mt_cli.decoding import Hyp, penalty
from mt_cli.decoding.rules import Rules
from mt_cli.decoding.search import STEPS_BETWEEN_CHECKS, beam_search, greedy_search
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

# Few enough words that every sequence can be tried: </s> and three others.
VOCAB_SIZE = 7
WORDS = (4, 5, 6)
FORBIDDEN = (PAD_ID, 1, BOS_ID)
SOURCES = [
    row[:length] for row, length in zip(random_ids(6, 5).tolist(), [1, 5, 3, 2, 4, 5], strict=True)
]
LIMITS = [4, 3, 1, 4, 2, 4]
ALPHAS = (0.0, 0.6, 1.0, 2.0)


def model_of(backend: str = "scratch", *, seed: int = 3) -> TranslationModel:
    model = tiny_model(backend, decoder_layers=2, output_bias=True, tgt_vocab_size=VOCAB_SIZE)
    return randomised(model, seed=seed, std=0.5)


@torch.no_grad()
def beams_of(
    model: TranslationModel,
    *,
    sources: Sequence[list[int]] = SOURCES,
    limits: Sequence[int] = LIMITS,
    beam_size: int,
    alpha: float = 0.0,
    n_best: int = 1,
    min_len: int = 0,
) -> list[list[Hyp]]:
    return beam_search(
        model.step,
        model.start(pad_ids(sources)),
        torch.tensor(limits),
        Rules(BOS_ID, EOS_ID, FORBIDDEN, min_len=min_len),
        beam_size=beam_size,
        length_penalty=alpha,
        n_best=n_best,
    )


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


def assert_same(found: list[Hyp], expected: list[Hyp]) -> None:
    assert [hyp.ids for hyp in found] == [hyp.ids for hyp in expected]
    assert [hyp.score for hyp in found] == pytest.approx([hyp.score for hyp in expected], abs=1e-4)
    assert [hyp.log_prob for hyp in found] == pytest.approx(
        [hyp.log_prob for hyp in expected], abs=1e-4
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_beam_wide_enough_finds_the_best_of_all(backend: str, alpha: float) -> None:
    oracle = model_of("torch")
    found = beams_of(model_of(backend), beam_size=len(WORDS) ** 4 * 2, alpha=alpha, n_best=5)
    for src, limit, hyps in zip(SOURCES, LIMITS, found, strict=True):
        expected = every_hyp(oracle, src, limit, alpha=alpha)[:5]
        assert_same(hyps[: len(expected)], expected)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("seed", range(6))
def test_one_beam_is_greedy_search(seed: int, alpha: float) -> None:
    model = model_of(seed=seed)
    with torch.no_grad():
        greedy = greedy_search(
            model.step,
            model.start(pad_ids(SOURCES)),
            torch.tensor(LIMITS),
            Rules(BOS_ID, EOS_ID, FORBIDDEN),
        )
    assert [hyps[0].ids for hyps in beams_of(model, beam_size=1, alpha=alpha)] == greedy


@torch.no_grad()
def beams_by_hand(
    model: TranslationModel, src: list[int], limit: int, *, beam_size: int, alpha: float
) -> list[Hyp]:
    """The same search over lists, without stopping early, the prefix computed anew each time."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[Hyp] = []
    for length in range(1, limit + 1):
        candidates = []
        for log_prob, ids in live:
            logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *ids]]))[0, -1]
            each = logits.log_softmax(-1).tolist()
            candidates += [(log_prob + each[i], [*ids, i]) for i in (EOS_ID, *WORDS)]
        best = sorted(candidates, reverse=True)[: beam_size - len(ended)]
        live = []
        for log_prob, ids in best:
            if ids[-1] == EOS_ID or length == limit:
                score = log_prob / ((5 + length) / 6) ** alpha
                ended.append(Hyp([i for i in ids if i != EOS_ID], score, log_prob))
            else:
                live.append((log_prob, ids))
    return sorted(ended, key=lambda hyp: -hyp.score)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
@pytest.mark.parametrize(("seed", "check_every"), [(1, 1), (2, 1), (3, 1), (1, 4), (2, 3)])
def test_beams_equal_those_kept_by_hand(
    seed: int, check_every: int, beam_size: int, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", check_every)
    model, limits = model_of(seed=seed), [6, 7, 1, 5, 4, 7]
    found = beams_of(model, limits=limits, beam_size=beam_size, alpha=alpha, n_best=beam_size)
    for src, limit, hyps in zip(SOURCES, limits, found, strict=True):
        expected = beams_by_hand(model, src, limit, beam_size=beam_size, alpha=alpha)
        assert_same([hyp for hyp in hyps if hyp.score > -math.inf], expected)


@pytest.mark.parametrize("n_best", [1, 2, 3])
def test_stopping_early_loses_none_of_the_best(n_best: int) -> None:
    model, limits = model_of(), [9] * len(SOURCES)
    few = beams_of(model, limits=limits, beam_size=4, alpha=1.0, n_best=n_best)
    every = beams_of(model, limits=limits, beam_size=4, alpha=1.0, n_best=4)
    for some, hyps in zip(few, every, strict=True):
        assert_same(some, hyps[:n_best])


class NothingKept:
    """The state of a model that looks at the last word alone."""

    def keep(self, rows: Tensor) -> None: ...

    def arrange(self, beams: Tensor) -> None: ...


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_gives_the_same_as_one_by_one(backend: str) -> None:
    model = model_of(backend)
    together = beams_of(model, beam_size=3, n_best=2)
    for src, limit, hyps in zip(SOURCES, LIMITS, together, strict=True):
        assert_same(beams_of(model, sources=[src], limits=[limit], beam_size=3, n_best=2)[0], hyps)


def test_no_hypothesis_is_shorter_than_asked_for() -> None:
    found = beams_of(model_of(), limits=[6] * len(SOURCES), beam_size=3, n_best=3, min_len=4)
    assert min(len(hyp.ids) for hyps in found for hyp in hyps) == 4


@pytest.mark.parametrize(
    ("length", "alpha", "expected"), [(7, 0.0, 1.0), (7, 1.0, 2.0), (19, 0.5, 2.0)]
)
def test_length_penalty_is_that_of_the_paper(length: int, alpha: float, expected: float) -> None:
    assert penalty(length, alpha) == expected
