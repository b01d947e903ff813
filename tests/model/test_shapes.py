"""Shapes that are told without a model: those of real models, and the memory that they ask for."""

from collections.abc import Mapping

import pytest
from tiny import BACKENDS, MODEL_OPTIONS, TINY, VOCAB_SIZE, covering, tiny_model

from mt_cli.model.shapes import num_parameters, parameter_shapes


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
