"""No sequence of n tokens twice: against a walk that looks back over its whole hypothesis."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import BACKENDS, random_ids, randomised, tiny_model

from mt_cli.data.batching import pad_ids
from mt_cli.decoding import Hyp
from mt_cli.decoding.rules import Rules, ban
from mt_cli.decoding.search import beam_search, greedy_search
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

# Few words and late ends, so that hypotheses repeat themselves.
VOCAB_SIZE = 8
FORBIDDEN = (PAD_ID, 1, BOS_ID)
ALLOWED = [i for i in range(VOCAB_SIZE) if i not in FORBIDDEN]
SOURCES = [
    row[:length] for row, length in zip(random_ids(6, 5).tolist(), [1, 5, 3, 2, 4, 5], strict=True)
]
LIMITS = [12, 14, 3, 12, 9, 14]
every_n = pytest.mark.parametrize("n", [1, 2, 3])


def ngrams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(ids[begin : begin + n]) for begin in range(len(ids) - n + 1)]


def would_repeat(ids: Sequence[int], new: int, n: int) -> bool:
    *before, last = ngrams([*ids, new], n) or [()]
    return last in before


@given(
    st.integers(0, 9).flatmap(
        lambda length: st.lists(
            st.lists(st.integers(0, 3), min_size=length, max_size=length), min_size=1, max_size=4
        )
    ),
    st.integers(1, 5),
)
def test_banned_are_exactly_those_that_would_repeat(hyps: list[list[int]], n: int) -> None:
    logits = torch.zeros(len(hyps), 4)
    rules = Rules(BOS_ID, EOS_ID, no_repeat_ngram=n)
    ban(logits, rules.repeating(torch.tensor(hyps, dtype=torch.long).view(len(hyps), -1)))
    expected = {
        (row, i) for row, hyp in enumerate(hyps) for i in range(4) if would_repeat(hyp, i, n)
    }
    assert {(row, i) for row, i in logits.isinf().nonzero().tolist()} == expected


def model_of(backend: str = "scratch") -> TranslationModel:
    model = tiny_model(backend, decoder_layers=2, output_bias=True, tgt_vocab_size=VOCAB_SIZE)
    model = randomised(model, seed=5, std=0.4)
    with torch.no_grad():
        model.output.bias[EOS_ID] -= 1.5
    return model


@torch.no_grad()
def greedy(
    n: int, *, backend: str = "scratch", rows: Sequence[int] = range(len(SOURCES))
) -> list[list[int]]:
    model = model_of(backend)
    return greedy_search(
        model.step,
        model.start(pad_ids([SOURCES[i] for i in rows])),
        torch.tensor([LIMITS[i] for i in rows]),
        Rules(BOS_ID, EOS_ID, FORBIDDEN, no_repeat_ngram=n),
    )


@torch.no_grad()
def walk(src: list[int], limit: int, n: int) -> list[int]:
    model, hyp = model_of("torch"), list[int]()
    while len(hyp) < limit:
        logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *hyp]]))[0, -1].tolist()
        best = max(
            (i for i in ALLOWED if not would_repeat(hyp, i, n)),
            key=lambda i, each=logits: each[i],  # type: ignore[misc]
        )
        if best == EOS_ID:
            break
        hyp.append(best)
    return hyp


@every_n
@pytest.mark.parametrize("backend", BACKENDS)
def test_greedy_search_equals_a_brute_force_walk(backend: str, n: int) -> None:
    expected = [walk(src, limit, n) for src, limit in zip(SOURCES, LIMITS, strict=True)]
    assert greedy(n, backend=backend) == expected


@every_n
def test_each_sentence_of_a_batch_looks_back_over_its_own(n: int) -> None:
    assert greedy(n) == [greedy(n, rows=[i])[0] for i in range(len(SOURCES))]


@torch.no_grad()
def beams(n: int, *, beam_size: int, backend: str = "scratch") -> list[list[Hyp]]:
    model = model_of(backend)
    return beam_search(
        model.step,
        model.start(pad_ids(SOURCES)),
        torch.tensor(LIMITS),
        Rules(BOS_ID, EOS_ID, FORBIDDEN, no_repeat_ngram=n),
        beam_size=beam_size,
        n_best=beam_size,
    )


@torch.no_grad()
def beams_by_hand(
    src: list[int], limit: int, n: int, *, beam_size: int
) -> list[tuple[float, list[int]]]:
    """The same search over lists: what is banned keeps its probability, which goes to no other."""
    model = model_of("torch")
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        candidates = []
        for log_prob, ids in live:
            each = (
                model(torch.tensor([src]), torch.tensor([[BOS_ID, *ids]]))[0, -1]
                .log_softmax(-1)
                .tolist()
            )
            candidates += [
                (log_prob + each[i], [*ids, i]) for i in ALLOWED if not would_repeat(ids, i, n)
            ]
        best = sorted(candidates, reverse=True)[: beam_size - len(ended)]
        ended += [each for each in best if each[1][-1] == EOS_ID or length == limit]
        live = [each for each in best if not (each[1][-1] == EOS_ID or length == limit)]
    return [
        (log_prob, [i for i in ids if i != EOS_ID]) for log_prob, ids in sorted(ended, reverse=True)
    ]


@every_n
@pytest.mark.parametrize("beam_size", [1, 2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_beams_equal_those_kept_by_hand(backend: str, beam_size: int, n: int) -> None:
    found = beams(n, beam_size=beam_size, backend=backend)
    for src, limit, hyps in zip(SOURCES, LIMITS, found, strict=True):
        expected = beams_by_hand(src, limit, n, beam_size=beam_size)
        real = [hyp for hyp in hyps if hyp.score > -torch.inf]
        assert [hyp.ids for hyp in real] == [ids for _, ids in expected]
        assert [hyp.log_prob for hyp in real] == pytest.approx(
            [each for each, _ in expected], abs=1e-4
        )
