"""Greedy search against walks by hand and by brute force."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from tiny import BACKENDS, VOCAB_SIZE, random_ids, randomised, tiny_model
from torch import Tensor

from mt_cli.data.batching import pad_ids
from mt_cli.decoding.rules import Rules
from mt_cli.decoding.search import STEPS_BETWEEN_CHECKS, greedy_search
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

SOURCES: list[list[int]] = [
    row[:length]
    for row, length in zip(random_ids(12, 8).tolist(), [1, 8, 3, 5, 2, 7, 4, 6] * 2, strict=False)
]
LIMITS = [9, 3, 12, 6, 1, 12, 10, 7, 12, 12, 5, 11]
FORBIDDEN = (PAD_ID, BOS_ID)


def model_of(backend: str) -> TranslationModel:
    """A model whose hypotheses end now by `</s>`, now at their limits."""
    return randomised(tiny_model(backend, decoder_layers=2, output_bias=True), seed=24, std=0.4)


@torch.no_grad()
def search(
    model: TranslationModel,
    sources: Sequence[list[int]],
    limits: Sequence[int],
    *,
    forbidden_ids: Sequence[int] = FORBIDDEN,
) -> list[list[int]]:
    state = model.start(pad_ids(sources))
    return greedy_search(
        model.step, state, torch.tensor(limits), Rules(BOS_ID, EOS_ID, forbidden_ids)
    )


@torch.no_grad()
def walk(model: TranslationModel, src: list[int], limit: int) -> list[int]:
    """Greedy decoding of one sentence, the whole prefix computed anew for every token."""
    hyp: list[int] = []
    while len(hyp) < limit:
        logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *hyp]]))[0, -1]
        allowed = [i for i in range(VOCAB_SIZE) if i not in FORBIDDEN]
        best = max(allowed, key=lambda i: logits[i].item())
        if best == EOS_ID:
            break
        hyp.append(best)
    return hyp


@pytest.mark.parametrize("check_every", [1, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_search_equals_a_brute_force_walk(
    backend: str, check_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", check_every)
    oracle = model_of("torch")
    expected = [walk(oracle, src, limit) for src, limit in zip(SOURCES, LIMITS, strict=True)]
    assert search(model_of(backend), SOURCES, LIMITS) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_gives_the_same_as_one_by_one(backend: str) -> None:
    model = model_of(backend)
    alone = [search(model, [src], [limit])[0] for src, limit in zip(SOURCES, LIMITS, strict=True)]
    assert search(model, SOURCES, LIMITS) == alone


@dataclass
class Script:
    """A state that says, of each row, what comes next; it notes which sentences each step computed."""

    rows: list[int]
    position: int = 0
    seen: list[list[int]] = field(default_factory=list)
    given: list[list[int]] = field(default_factory=list)

    def keep(self, rows: Tensor) -> None:
        self.rows = [self.rows[i] for i in rows.tolist()]

    def arrange(self, beams: Tensor) -> None:
        raise AssertionError("greedy search has one beam")


def follow(
    lines: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    forbidden_ids: Sequence[int] = (),
    second_best: int = 9,
) -> tuple[list[list[int]], Script]:
    """Search over a step that likes the next id of each of `lines` best; past their ends, `</s>`."""

    def step(ids: Tensor, state: Script) -> Tensor:
        state.seen.append(list(state.rows))
        state.given.append(ids.squeeze(1).tolist())
        logits = torch.zeros(len(state.rows), 1, 10)
        logits[..., second_best] = 1
        for row, line in enumerate(state.rows):
            wanted = lines[line][state.position] if state.position < len(lines[line]) else EOS_ID
            logits[row, 0, wanted] = 2
        state.position += 1
        return logits

    script = Script(list(range(len(lines))))
    hyps = greedy_search(step, script, torch.tensor(limits), Rules(BOS_ID, EOS_ID, forbidden_ids))
    return hyps, script


def test_each_step_is_given_what_the_last_one_chose() -> None:
    assert follow([[4, 5], [7, 8]], [10, 10])[1].given == [[BOS_ID, BOS_ID], [4, 7], [5, 8]]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([1, 3, 2], [[4], [6, 7, 8], [5, 5]]),
        ([3, 1, 9], [[4, 4, 4], [6], [5, 5, 5]]),
        ([2, 2, 2], [[4, 4], [6, 7], [5, 5]]),
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


def test_forbidden_ids_are_passed_over_for_the_next_best() -> None:
    assert follow([[4, 0, 2, 5]], [4], forbidden_ids=(0, 2), second_best=8)[0] == [[4, 8, 8, 5]]


def test_a_forbidden_end_is_never_chosen() -> None:
    assert follow([[4]], [3], forbidden_ids=(EOS_ID,), second_best=7)[0] == [[4, 7, 7]]


def test_no_sentences_give_no_hypotheses() -> None:
    hyps, script = follow([], [])
    assert hyps == []
    assert script.seen == []
