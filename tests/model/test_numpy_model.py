"""`NumpyModel` computes what the backends compute."""

import math

import pytest
import torch
from test_backends_agree import CASES, describe
from tiny import TINY, VOCAB_SIZE, random_ids, randomised, tiny_model, with_bos

from mt_cli.decoding.search import Rules, greedy_search
from mt_cli.model.inside import attention_maps
from mt_cli.model.model import TranslationModel
from mt_cli.model.numpy_model import NumpyModel, parameter_shapes
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID


def src_size(options: dict[str, object]) -> int:
    """Another size than that of the target, where it may be another."""
    return VOCAB_SIZE if options.get("tie") == "all" else 9


def tiny_of(options: dict[str, object], *, backend: str = "scratch") -> TranslationModel:
    return tiny_model(backend, src_vocab_size=src_size(options), options=options)


def twins(
    options: dict[str, object], *, backend: str = "scratch"
) -> tuple[TranslationModel, NumpyModel]:
    """A model of two layers, and the same in NumPy."""
    options = {"decoder_layers": 2, "max_len": 24} | options
    model = randomised(tiny_of(options, backend=backend), std=0.3)
    weights = {name: each.detach().numpy() for name, each in model.named_parameters()}
    return model, NumpyModel(TINY.model_copy(update=options), weights)


@pytest.mark.parametrize("options", CASES, ids=describe)
def test_the_shape_of_each_parameter_is_known_without_torch(options: dict[str, object]) -> None:
    model = tiny_of(options)
    expected = {name: tuple(each.shape) for name, each in model.named_parameters()}
    config = TINY.model_copy(update=options)
    found = parameter_shapes(config, src_vocab_size=src_size(options), tgt_vocab_size=VOCAB_SIZE)
    assert found == expected


@torch.no_grad()
@pytest.mark.parametrize("backend", ["scratch", "torch"])
@pytest.mark.parametrize("options", CASES, ids=describe)
def test_steps_equal_the_teacher_forced_forward(options: dict[str, object], backend: str) -> None:
    """For more positions than the cache has room for at first."""
    model, alone = twins(options, backend=backend)
    src_ids, tgt_in = random_ids(1, 7, vocab_size=9), with_bos(random_ids(1, 23, seed=1))
    expected = model(src_ids, tgt_in)[0]
    caches = alone.start(src_ids[0].tolist())
    for position, token_id in enumerate(tgt_in[0].tolist()):
        logits = torch.from_numpy(alone.step(token_id, caches))
        torch.testing.assert_close(logits, expected[position], rtol=0, atol=2e-5)


def test_products_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, alone = twins({"tie": "all"})
    src_ids = random_ids(1, 7)[0].tolist()
    whole = alone.step(BOS_ID, alone.start(src_ids))
    monkeypatch.setattr("mt_cli.model.numpy_model.LARGEST_PRODUCT", 24)
    in_blocks = alone.step(BOS_ID, alone.start(src_ids))
    torch.testing.assert_close(torch.from_numpy(in_blocks), torch.from_numpy(whole))


@torch.no_grad()
@pytest.mark.parametrize(("limit", "prefix"), [(1, []), (4, [5, 6]), (20, []), (20, [9])])
def test_it_finds_what_greedy_search_finds(limit: int, prefix: list[int]) -> None:
    model, alone = twins({"output_bias": True})
    forbidden_ids = (PAD_ID, BOS_ID, 7)
    rules = Rules(BOS_ID, EOS_ID, forbidden_ids)
    limits, prefixes = torch.tensor([limit]), torch.tensor([prefix], dtype=torch.long)
    for seed in range(20):
        src_ids = random_ids(1, 1 + seed % 9, seed=seed, vocab_size=9)
        state = model.start(src_ids)
        (expected,) = greedy_search(model.step, state, limits, rules, prefixes=prefixes)
        found = alone.greedy_search(
            src_ids[0].tolist(), limit=limit, forbidden_ids=forbidden_ids, prefix=prefix
        )
        assert found == expected


@torch.no_grad()
@pytest.mark.parametrize("num_layers", [1, 3])
def test_log_probs_and_attention_are_those_of_the_model(num_layers: int) -> None:
    model, alone = twins({"decoder_layers": num_layers})
    src_ids, hyp = random_ids(1, 7, vocab_size=9), random_ids(1, 5, seed=1)
    tgt_in = with_bos(hyp)
    expected = model(src_ids, tgt_in)[0].log_softmax(-1)
    next_ids = [*hyp[0].tolist(), EOS_ID]
    log_probs = alone.token_log_probs(src_ids[0].tolist(), hyp[0].tolist())
    for row, next_id, log_prob in zip(expected, next_ids, log_probs, strict=True):
        assert math.isclose(log_prob, float(row[next_id]), abs_tol=2e-5)
    weights = attention_maps(model, src_ids, tgt_in)["cross"][-2:][0, 0].mean(0)  # (T, S)
    found = torch.from_numpy(alone.cross_attention(src_ids[0].tolist(), hyp[0].tolist()))
    torch.testing.assert_close(found, weights[:-1], rtol=0, atol=1e-5)


def test_nothing_attends_where_there_is_no_target() -> None:
    _, alone = twins({})
    assert alone.cross_attention([5, 6, EOS_ID], []).shape == (0, 3)
