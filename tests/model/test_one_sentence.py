"""`OneSentenceModel` computes what the model does."""

import pytest
import torch
from test_backends_agree import CASES, describe
from tiny import random_ids, randomised, tiny_model, with_bos
from torch import nn

from mt_cli.config.schema import BACKENDS
from mt_cli.model.cpu_kernels import transpose_weights_
from mt_cli.model.model import Ensemble, TranslationModel
from mt_cli.model.one_sentence import OneSentenceModel
from mt_cli.text import BOS_ID


def model_of(options: dict[str, object]) -> TranslationModel:
    model = tiny_model(options=options, decoder_layers=2, max_len=24)
    return randomised(model, std=0.3)


def alone_of(model: TranslationModel) -> OneSentenceModel:
    alone = OneSentenceModel.of(model)
    assert alone is not None
    return alone


def suits(model: nn.Module) -> bool:
    return OneSentenceModel.of(model) is not None


@torch.no_grad()
@pytest.mark.parametrize("options", CASES, ids=describe)
def test_every_step_gives_the_same_logits(options: dict[str, object]) -> None:
    """For more positions than the cache has room for at first."""
    model = model_of(options)
    alone = alone_of(model)
    src_ids = random_ids(1, 7)
    expected, actual = model.start(src_ids), alone.start(src_ids)
    for ids in with_bos(random_ids(1, model.max_len - 1, seed=1)).unsqueeze(-1).unbind(1):
        torch.testing.assert_close(
            alone.step(ids, actual), model.step(ids, expected), rtol=0, atol=2e-5
        )
    assert actual.length == model.max_len


@torch.no_grad()
def test_weights_in_another_layout_are_read_alike() -> None:
    model = model_of({"tie": "all"})
    src_ids, ids = random_ids(1, 4), torch.tensor([[BOS_ID]])
    expected = model.step(ids, model.start(src_ids))
    transpose_weights_(model)
    alone = alone_of(model)
    torch.testing.assert_close(alone.step(ids, alone.start(src_ids)), expected)


@torch.no_grad()
def test_a_matrix_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt_cli.model.one_sentence.LARGEST_BLOCK", 24)
    model = model_of({})
    alone = alone_of(model)
    src_ids, ids = random_ids(1, 4), torch.tensor([[BOS_ID]])
    torch.testing.assert_close(
        alone.step(ids, alone.start(src_ids)), model.step(ids, model.start(src_ids))
    )


def test_only_models_of_our_own_layers_are_suited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "own", ("own_backend", "OwnBackend"))
    small = tiny_model()
    assert suits(small)
    assert not suits(tiny_model("own"))
    assert not suits(tiny_model("torch"))
    assert not suits(Ensemble([small, small]))
