"""`OneSentenceModel` computes what the model does."""

import pytest
import torch
from test_backends_agree import CASES, describe
from tiny import random_ids, randomised, tiny_model, with_bos
from torch import nn

from mt_cli.config.schema import BACKENDS
from mt_cli.decoding import Rules, greedy_search
from mt_cli.model.cpu_kernels import transpose_weights_
from mt_cli.model.model import Ensemble, TranslationModel
from mt_cli.model.one_sentence import OneSentenceModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID


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
def assert_same_logits(model: TranslationModel, alone: OneSentenceModel, *, length: int) -> None:
    """At every position of a target of `length` ids."""
    src_ids, tgt_in = random_ids(1, 7), with_bos(random_ids(1, length - 1, seed=1))
    caches = alone.start(src_ids)
    expected = model(src_ids, tgt_in)[0]
    for position, token_id in enumerate(tgt_in[0].tolist()):
        logits = torch.from_numpy(alone.step(token_id, caches, position=position))
        torch.testing.assert_close(logits, expected[position], rtol=0, atol=2e-5)


@pytest.mark.parametrize("options", CASES, ids=describe)
def test_steps_equal_the_teacher_forced_forward(options: dict[str, object]) -> None:
    """For more positions than the cache has room for at first."""
    model = model_of(options)
    assert_same_logits(model, alone_of(model), length=model.max_len)


def test_weights_in_another_layout_and_in_blocks_are_read_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_of({"tie": "all"})
    monkeypatch.setattr("mt_cli.model.one_sentence.LARGEST_BLOCK", 24)
    assert_same_logits(model, alone_of(model), length=3)
    transpose_weights_(model)
    assert_same_logits(model, alone_of(model), length=3)


@torch.no_grad()
@pytest.mark.parametrize(("limit", "prefix"), [(1, []), (4, [5, 6]), (20, []), (20, [9])])
def test_it_finds_what_greedy_search_finds(limit: int, prefix: list[int]) -> None:
    model = model_of({"output_bias": True})
    forbidden_ids = (PAD_ID, BOS_ID, 7)
    rules = Rules(BOS_ID, EOS_ID, forbidden_ids)
    limits, prefixes = torch.tensor([limit]), torch.tensor([prefix], dtype=torch.long)
    for seed in range(20):
        src_ids = random_ids(1, 1 + seed % 9, seed=seed)
        state = model.start(src_ids)
        (expected,) = greedy_search(model.step, state, limits, rules, prefixes=prefixes)
        found = alone_of(model).greedy_search(
            src_ids, limit=limit, forbidden_ids=forbidden_ids, prefix=prefix
        )
        assert found == expected


def test_only_models_of_our_own_layers_are_suited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "own", ("own_backend", "OwnBackend"))
    small = tiny_model()
    assert suits(small)
    assert not suits(tiny_model("own"))
    assert not suits(tiny_model("torch"))
    assert not suits(Ensemble([small, small]))
