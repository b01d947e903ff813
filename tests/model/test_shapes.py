"""Shapes that are told without a model: those of real models, and the memory that they ask for."""

from collections.abc import Mapping

import pytest
from tiny import BACKENDS, MODEL_OPTIONS, TINY, VOCAB_SIZE, covering, tiny_model

from mt_cli.errors import ResourceError
from mt_cli.model import shapes
from mt_cli.model.shapes import (
    IN_TRAINING,
    check_fits_memory,
    check_training_fits,
    num_parameters,
    parameter_shapes,
)
from mt_cli.training.optimiser import Optimiser


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", covering(MODEL_OPTIONS), ids=str)
def test_shapes_are_those_of_a_real_model(backend: str, options: Mapping[str, object]) -> None:
    sizes = {"src_vocab_size": VOCAB_SIZE, "tgt_vocab_size": VOCAB_SIZE}
    told = parameter_shapes(**{**TINY.model_dump(), **options, **sizes})
    model = tiny_model(backend, options=options)
    assert told == {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert num_parameters(told) == sum(p.numel() for p in model.parameters())


def test_each_side_has_its_own_vocabulary() -> None:
    told = parameter_shapes(**TINY.model_dump(), src_vocab_size=11, tgt_vocab_size=13)
    model = tiny_model(tgt_vocab_size=13)
    assert told == {name: tuple(p.shape) for name, p in model.named_parameters()}


@pytest.mark.parametrize("memory", [4000, None], ids=["just enough", "unknown"])
def test_a_model_that_fits_passes(memory: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "usable_memory", lambda: memory)
    check_fits_memory({"weight": (100, 10)})


def test_a_model_that_does_not_fit_is_refused_with_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "usable_memory", lambda: 1 << 30)
    complaint = r"1,073,741,824 parameters take 4\.0 GiB, and there are 1\.0 GiB; lower model\.d_model"
    with pytest.raises(ResourceError, match=complaint):
        check_fits_memory({"weight": (1 << 15, 1 << 15)})


@pytest.mark.parametrize("memory", [16000, None], ids=["just enough", "unknown"])
def test_a_model_whose_training_fits_passes(memory: int | None) -> None:
    check_training_fits({"weight": (100, 10)}, memory=memory)


def test_a_model_whose_training_does_not_fit_is_refused() -> None:
    complaint = r"1,000 parameters and their training take .* GiB, and there are .* GiB; lower model\.d_model"
    with pytest.raises(ResourceError, match=complaint):
        check_training_fits({"weight": (100, 10)}, memory=15999)


def test_a_model_that_cannot_be_built_is_refused_however_large_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shapes, "usable_memory", lambda: 3999)
    with pytest.raises(ResourceError, match="1,000 parameters take"):
        check_training_fits({"weight": (100, 10)}, memory=1 << 40)


def test_training_holds_as_many_numbers_for_each_parameter_as_are_counted() -> None:
    model = tiny_model()
    optimiser = Optimiser(model, optimizer="adam", betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    means = [tensor.numel() for name, tensor in optimiser.tensors().items() if not name.endswith(":step")]
    num_numbers = sum(p.numel() for p in model.parameters())  # and as many of gradients
    assert 2 * num_numbers + sum(means) == IN_TRAINING * num_numbers
