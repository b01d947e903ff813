"""Sampling against frequencies worked out by hand and by softmax, and a walk by hand."""

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
from mt_cli.decoding import Hyp
from mt_cli.decoding.search import (
    STEPS_BETWEEN_CHECKS,
    Rules,
    pad_prefixes,
    sample_ids,
    sample_search,
)
from mt_cli.model.model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

GRID = 5_000
EVENLY = (torch.arange(GRID) + 0.5) / GRID
SMALLEST, LARGEST = 0.0, 1 - 2**-24  # of the numbers in [0, 1) that 32 bits can hold


def frequencies(logits: Tensor, *, temperature: float = 1.0, **limits: Any) -> list[float]:  # noqa: ANN401
    """How often each id is drawn by draws that are spread evenly; `logits` are (V,)."""
    drawn = sample_ids((logits / temperature).expand(GRID, -1), EVENLY, **limits)
    frequencies: list[float] = (drawn.bincount(minlength=len(logits)) / GRID).tolist()
    return frequencies


@settings(max_examples=20)
@given(st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=60))
def test_frequencies_are_those_of_softmax(logits: list[float]) -> None:
    row = torch.tensor(logits)
    assert frequencies(row) == pytest.approx(row.softmax(-1).tolist(), abs=3e-4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"temperature": 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        ({"k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"p": 0.0}, [0, 1, 0, 0]),
        ({"p": 0.8}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"k": 3, "p": 0.7}, [0, 4 / 7, 0, 3 / 7]),
        ({"temperature": 0.5, "p": 0.6}, [0, 16 / 25, 0, 9 / 25]),
    ],
    ids=str,
)
def test_frequencies_are_those_worked_out_by_hand(
    options: dict[str, Any], expected: list[float]
) -> None:
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    assert frequencies(logits, **options) == pytest.approx(expected, abs=3e-4)


@pytest.mark.parametrize("number", [SMALLEST, 0.5, LARGEST])
def test_what_is_forbidden_is_never_drawn(number: float) -> None:
    logits = torch.full((1, 300), -torch.inf)
    logits[0, 7] = -50
    assert sample_ids(logits, torch.tensor([number])).tolist() == [7]


SOURCES = [
    row[:length] for row, length in zip(random_ids(6, 5).tolist(), [1, 5, 3, 2, 4, 5], strict=True)
]
LIMITS = [9, 3, 1, 12, 7, 10]
FORBIDDEN = (PAD_ID, BOS_ID)
WARM: dict[str, Any] = {"temperature": 1.5, "top_k": 6, "top_p": 0.95}
TIMES = 3
"""Of each source, so that what has ended waits with others in the batch."""


def model_of(backend: str = "scratch") -> TranslationModel:
    return randomised(tiny_model(backend, decoder_layers=2, output_bias=True), seed=24, std=0.3)


def uniform(seed: int = 0, *, times: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(len(SOURCES) * times, max(LIMITS), generator=generator)


@torch.no_grad()
def samples(
    draws: Tensor,
    *,
    rows: Sequence[int] = range(len(SOURCES)),
    **options: Any,  # noqa: ANN401
) -> list[Hyp]:
    model = model_of()
    return sample_search(
        model.step,
        model.start(pad_ids([SOURCES[i] for i in rows])),
        draws,
        torch.tensor([LIMITS[i] for i in rows]),
        Rules(BOS_ID, EOS_ID, FORBIDDEN),
        **options,
    )


@torch.no_grad()
def sample_by_hand(
    src: list[int], limit: int, draws: Sequence[float], *, prefix: Sequence[int] = ()
) -> Hyp:
    """A `WARM` one over lists, one sentence, the whole prefix computed anew for every token."""
    model, ids, log_prob = model_of("torch"), list(prefix), 0.0
    for number in draws[len(prefix) : limit]:
        logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *ids]]))[0, -1].double()
        allowed = [i for i in range(VOCAB_SIZE) if i not in FORBIDDEN]
        heated = (logits[allowed] / WARM["temperature"]).softmax(-1).tolist()
        ranked = sorted(zip(heated, allowed, strict=True), reverse=True)[: int(WARM["top_k"])]
        of_ranked = np.array([prob for prob, _ in ranked]) / sum(prob for prob, _ in ranked)
        enough = int((np.cumsum(of_ranked) - of_ranked < WARM["top_p"]).sum())
        reached = np.cumsum(of_ranked[:enough]) / of_ranked[:enough].sum()
        _, chosen = ranked[int((reached <= number).sum())]
        log_prob += float(logits.log_softmax(-1)[chosen])
        if chosen == EOS_ID:
            break
        ids.append(chosen)
    return Hyp(ids, log_prob * 6 / (5 + min(len(ids) + 1, limit)), log_prob)


NO_PREFIXES: list[list[int]] = [[]] * len(SOURCES)


@pytest.mark.parametrize("prefixes", [NO_PREFIXES, [[], [5, 4], [], [6, 7, 6], [9], []]], ids=str)
@pytest.mark.parametrize("check_every", [1, 8])
def test_samples_are_those_drawn_by_hand_while_others_end(
    monkeypatch: pytest.MonkeyPatch, check_every: int, prefixes: list[list[int]]
) -> None:
    monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", check_every)
    draws, rows = uniform(3, times=TIMES), [*range(len(SOURCES))] * TIMES
    padded = pad_prefixes([prefixes[i] for i in rows], torch.device("cpu"))
    found = samples(draws, rows=rows, prefixes=padded, length_penalty=1.0, **WARM)
    expected = [
        sample_by_hand(SOURCES[i], LIMITS[i], each, prefix=prefixes[i])
        for i, each in zip(rows, draws.tolist(), strict=True)
    ]
    assert [hyp.ids for hyp in found] == [hyp.ids for hyp in expected]
    numbers, by_hand = ([(hyp.log_prob, hyp.score) for hyp in hyps] for hyps in (found, expected))
    np.testing.assert_allclose(numbers, by_hand, atol=1e-4)
