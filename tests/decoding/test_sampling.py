"""Sampling against frequencies worked out by hand and by softmax, and against the model's own
logits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import VOCAB_SIZE, random_ids, randomised, tiny_model
from torch import Tensor

from mt_cli.data.batching import pad_ids
from mt_cli.decoding.search import (
    STEPS_BETWEEN_CHECKS,
    Hyp,
    Rules,
    Sampling,
    greedy_search,
    sample_ids,
    sample_search,
)
from mt_cli.errors import UsageError
from mt_cli.model.model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

GRID = 5_000
EVENLY = (torch.arange(GRID) + 0.5) / GRID
SMALLEST, LARGEST = 0.0, 1 - 2**-24  # of the numbers in [0, 1) that 32 bits can hold


def frequencies(logits: Tensor, sampling: Sampling) -> list[float]:
    """How often each id is drawn by draws that are spread evenly; `logits` are (V,)."""
    drawn = sample_ids(logits.expand(GRID, -1), EVENLY, sampling)
    frequencies: list[float] = (drawn.bincount(minlength=len(logits)) / GRID).tolist()
    return frequencies


@settings(max_examples=20)
@given(st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=60))
def test_frequencies_are_those_of_softmax(logits: list[float]) -> None:
    row = torch.tensor(logits)
    assert frequencies(row, Sampling()) == pytest.approx(row.softmax(-1).tolist(), abs=3e-4)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(temperature=0.5), [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        (Sampling(temperature=1e6), [0.25, 0.25, 0.25, 0.25]),
        (Sampling(top_k=1), [0, 1, 0, 0]),
        (Sampling(top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(top_p=0.0), [0, 1, 0, 0]),
        (Sampling(top_p=0.5), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(top_p=0.8), [0, 4 / 9, 2 / 9, 3 / 9]),
        (Sampling(top_k=3, top_p=0.7), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(temperature=0.5, top_p=0.6), [0, 16 / 25, 0, 9 / 25]),
    ],
    ids=str,
)
def test_frequencies_are_those_worked_out_by_hand(
    sampling: Sampling, expected: list[float]
) -> None:
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    assert frequencies(logits, sampling) == pytest.approx(expected, abs=3e-4)


@pytest.mark.parametrize("number", [SMALLEST, 0.5, LARGEST])
def test_what_is_forbidden_is_never_drawn(number: float) -> None:
    logits = torch.full((1, 300), -torch.inf)
    logits[0, 7] = -50
    assert sample_ids(logits, torch.tensor([number]), Sampling()).tolist() == [7]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", -1),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("top_p", float("nan")),
        ("temperature", 0.0),
    ],
)
def test_limits_that_are_none_are_refused(name: str, value: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=f"^{name}: .*found {value}"):
        Sampling(**{name: value})


SOURCES = [
    row[:length] for row, length in zip(random_ids(6, 5).tolist(), [1, 5, 3, 2, 4, 5], strict=True)
]
LIMITS = [9, 3, 1, 12, 7, 10]
FORBIDDEN = (PAD_ID, BOS_ID)
WARM = Sampling(temperature=1.5, top_k=6, top_p=0.95)


def model_of(backend: str = "scratch") -> TranslationModel:
    return randomised(tiny_model(backend, decoder_layers=2, output_bias=True), seed=24, std=0.3)


def uniform(seed: int = 0) -> Tensor:
    return torch.rand(len(SOURCES), max(LIMITS), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def samples(
    draws: Tensor,
    *,
    backend: str = "scratch",
    rows: Sequence[int] = range(len(SOURCES)),
    sampling: Sampling = WARM,
    no_repeat_ngram: int = 0,
) -> list[Hyp]:
    model = model_of(backend)
    return sample_search(
        model.step,
        model.start(pad_ids([SOURCES[i] for i in rows])),
        draws[list(rows)],
        torch.tensor([LIMITS[i] for i in rows]),
        sampling,
        Rules(BOS_ID, EOS_ID, FORBIDDEN, no_repeat_ngram=no_repeat_ngram),
    )


@torch.no_grad()
def sample_by_hand(src: list[int], limit: int, draws: Sequence[float], sampling: Sampling) -> Hyp:
    """The same over lists, one sentence, the whole prefix computed anew for every token."""
    model, ids, log_prob = model_of("torch"), list[int](), 0.0
    for number in draws[:limit]:
        logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *ids]]))[0, -1].double()
        allowed = [i for i in range(VOCAB_SIZE) if i not in FORBIDDEN]
        probs = logits.softmax(-1).tolist()
        heated = dict(
            zip(allowed, (logits[allowed] / sampling.temperature).softmax(-1).tolist(), strict=True)
        )
        ranked = sorted(allowed, key=lambda i, heated=heated: -heated[i])[: sampling.top_k]  # type: ignore[misc]
        of_ranked = np.array([heated[i] for i in ranked]) / sum(heated[i] for i in ranked)
        enough = int((np.cumsum(of_ranked) - of_ranked < sampling.top_p).sum())
        reached = np.cumsum(of_ranked[:enough]) / of_ranked[:enough].sum()
        chosen = ranked[int((reached <= number).sum())]
        log_prob += float(np.log(probs[chosen]))
        if chosen == EOS_ID:
            break
        ids.append(chosen)
    return Hyp(ids, log_prob, log_prob)


@pytest.mark.parametrize("check_every", [1, 8])
@torch.no_grad()
def test_what_has_ended_counts_no_more_while_it_stays_in_the_batch(
    monkeypatch: pytest.MonkeyPatch, check_every: int
) -> None:
    monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", check_every)
    model, times = model_of("scratch"), 3
    generator = torch.Generator().manual_seed(3)
    draws = torch.rand(len(SOURCES) * times, max(LIMITS), generator=generator)
    found = sample_search(
        model.step,
        model.start(pad_ids(SOURCES * times)),
        draws,
        torch.tensor(LIMITS * times),
        WARM,
        Rules(BOS_ID, EOS_ID, FORBIDDEN),
        length_penalty=1.0,
    )
    pairs = zip(SOURCES * times, LIMITS * times, draws.tolist(), strict=True)
    expected = [sample_by_hand(*each, WARM) for each in pairs]
    assert [hyp.ids for hyp in found] == [hyp.ids for hyp in expected]
    assert [hyp.log_prob for hyp in found] == pytest.approx(
        [hyp.log_prob for hyp in expected], abs=1e-4
    )
    for hyp, limit in zip(found, LIMITS * times, strict=True):
        length = min(len(hyp.ids) + 1, limit)
        assert hyp.score == pytest.approx(hyp.log_prob * 6 / (5 + length))


def test_same_draws_give_the_same_whatever_else_is_in_the_batch() -> None:
    draws = uniform()
    together = [hyp.ids for hyp in samples(draws)]
    assert [samples(draws, rows=[i])[0].ids for i in range(len(SOURCES))] == together
    some = [hyp.ids for hyp in samples(draws, rows=[4, 1, 3])]
    assert some == [together[4], together[1], together[3]]


@pytest.mark.parametrize(("seed", "temperature"), [(1, 1.0), (2, 3.0)])
def test_only_the_likeliest_is_greedy_search(seed: int, temperature: float) -> None:
    model, rules = model_of(), Rules(BOS_ID, EOS_ID, FORBIDDEN)
    with torch.no_grad():
        greedy = greedy_search(
            model.step, model.start(pad_ids(SOURCES)), torch.tensor(LIMITS), rules
        )
    found = samples(uniform(seed), sampling=Sampling(top_k=1, temperature=temperature))
    assert [hyp.ids for hyp in found] == greedy


@torch.no_grad()
def test_log_probability_is_that_of_the_model_whatever_the_rules_forbid() -> None:
    found = samples(uniform(), sampling=Sampling(temperature=5), no_repeat_ngram=1)
    model = model_of("torch")
    for src, limit, hyp in zip(SOURCES, LIMITS, found, strict=True):
        targets = [*hyp.ids, EOS_ID][:limit]
        logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *hyp.ids]]))[0, : len(targets)]
        of_targets = logits.double().log_softmax(-1)[range(len(targets)), targets]
        assert hyp.log_prob == pytest.approx(float(of_targets.sum()), abs=1e-4)
