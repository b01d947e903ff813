"""Filling up batches changes nothing that is looked at."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import BACKENDS, random_ids, randomised, tiny_model

from mt_cli.decoding.rules import Rules
from mt_cli.decoding.search import beam_search, greedy_search
from mt_cli.model.backend import DecoderState
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.few_shapes import FewShapes
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text.symbols import BOS_ID, EOS_ID, PAD_ID

MODELS: dict[str, TranslationModel | Ensemble] = {
    **{backend: randomised(tiny_model(backend, decoder_layers=2), seed=3) for backend in BACKENDS},
    "ensemble": Ensemble([randomised(tiny_model(), seed=seed) for seed in (4, 5)]).eval(),
}
RULES = Rules(BOS_ID, EOS_ID, (PAD_ID, BOS_ID))
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@each_model
@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=7), beam_size=st.integers(1, 3))
@torch.no_grad()
def test_search_finds_the_same(
    model: TranslationModel | Ensemble, lengths: list[int], beam_size: int
) -> None:
    src_ids = random_ids(len(lengths), max(lengths), lengths=lengths)
    limits = torch.tensor(lengths) + 3
    plain, other = (
        [beam_search(each.step, each.start(src_ids), limits, RULES, beam_size=beam_size, length_penalty=1.0)
         for each in (model, FewShapes(model))]
    )  # fmt: skip
    assert [[hyp.ids for hyp in hyps] for hyps in other] == [[hyp.ids for hyp in hyps] for hyps in plain]
    alone, together = (
        greedy_search(each.step, each.start(src_ids), limits, RULES) for each in (model, FewShapes(model))
    )
    assert together == alone


@each_model
@torch.no_grad()
def test_the_model_sees_sizes_that_are_rounded_up(
    model: TranslationModel | Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    step = model.step

    def watched(ids: torch.Tensor, state: DecoderState) -> torch.Tensor:
        rows.append(len(ids))
        return step(ids, state)

    monkeypatch.setattr(model, "step", watched)
    src_ids = random_ids(11, 5)
    few = FewShapes(model)
    state = few.start(src_ids)
    for kept in (range(11), [10, 1, 2, 3, 4, 5, 6, 7, 8], range(7)):
        state.keep(torch.tensor(kept))
        few.step(torch.full((len(kept), 1), BOS_ID), state)
    assert rows == [12, 10, 7]


@pytest.mark.parametrize(("max_len", "width"), [(16, 10), (9, 9)], ids=["a rung", "the model's"])
def test_widths_are_rounded_up_as_far_as_the_model_takes(
    max_len: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = randomised(tiny_model(max_len=max_len))
    widths: list[int] = []
    start = model.start

    def watched(src_ids: torch.Tensor) -> DecoderState:
        widths.append(src_ids.shape[1])
        return start(src_ids)

    monkeypatch.setattr(model, "start", watched)
    FewShapes(model).start(random_ids(2, 9))
    assert widths == [width]
