"""Filling up batches changes nothing that is looked at."""

import pytest
import torch
from hypothesis import given
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


def up_to_eights(size: int) -> int:
    return -(-size // 8) * 8


def filled(model: TranslationModel | Ensemble) -> FewShapes:
    return FewShapes(model, pad_id=PAD_ID, round_up=up_to_eights)


@each_model
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=7), beam_size=st.integers(1, 3))
@torch.no_grad()
def test_search_finds_the_same(
    model: TranslationModel | Ensemble, lengths: list[int], beam_size: int
) -> None:
    src_ids = random_ids(len(lengths), max(lengths), lengths=lengths)
    limits = [length + 3 for length in lengths]
    plain, other = (
        [beam_search(each.step, each.start(src_ids), limits, RULES, beam_size=beam_size, length_penalty=1.0)
         for each in (model, filled(model))]
    )  # fmt: skip
    assert [[hyp.ids for hyp in hyps] for hyps in other] == [[hyp.ids for hyp in hyps] for hyps in plain]
    alone, together = (
        greedy_search(each.step, each.start(src_ids), limits, RULES) for each in (model, filled(model))
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
    few = filled(model)
    state = few.start(src_ids)
    few.step(torch.full((11, 1), BOS_ID), state)
    state.keep(torch.tensor([10, 1, 2, 3, 4, 5, 6, 7, 8]))
    few.step(torch.full((9, 1), 5), state)
    state.keep(torch.arange(7))
    few.step(torch.full((7, 1), 5), state)
    assert rows == [16, 16, 8]


def test_widths_stop_at_what_the_model_takes() -> None:
    model = randomised(tiny_model(max_len=10))
    filled(model).start(random_ids(2, 9))
