"""Matrices laid out for decoding: other strides, the same values."""

from collections.abc import Iterator

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model, with_bos
from torch import nn

from mt_cli.model.cpu_kernels import lay_out_for_decoding
from mt_cli.model.translation_model import TranslationModel

TIES = ("none", "decoder", "all")
models = pytest.mark.parametrize("tie", TIES)


def tied_model(tie: str, *, backend: str = "scratch") -> TranslationModel:
    return randomised(tiny_model(backend, decoder_layers=2, tie=tie, output_bias=True, d_ff=24))


def laid_out(tie: str, *, backend: str = "scratch") -> TranslationModel:
    model = tied_model(tie, backend=backend)
    lay_out_for_decoding(model)
    return model


def matrices(model: TranslationModel) -> Iterator[tuple[str, nn.Parameter]]:
    """All matrices that a vector is multiplied by."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "embedding" not in name:
            yield name, parameter


@pytest.mark.parametrize("backend", BACKENDS)
@models
@torch.no_grad()
def test_logits_stay_the_same(tie: str, backend: str) -> None:
    src, tgt = random_ids(3, 6, lengths=[6, 2, 4]), with_bos(random_ids(3, 5, seed=1))
    expected = tied_model(tie, backend=backend)(src, tgt)
    torch.testing.assert_close(
        laid_out(tie, backend=backend)(src, tgt), expected, rtol=0, atol=2e-6
    )


@models
def test_columns_of_every_matrix_lie_side_by_side(tie: str) -> None:
    strides = {name: matrix.stride() for name, matrix in matrices(laid_out(tie))}
    assert "output.weight" in strides
    assert "backend.encoder.layers.0.self_attn.in_proj_weight" in strides
    assert [name for name, stride in strides.items() if stride[0] != 1] == []


@pytest.mark.parametrize("tie", ["decoder", "all"])
def test_tied_output_layer_becomes_a_copy_and_leaves_the_embedding(tie: str) -> None:
    model = tied_model(tie)
    embedding = model.tgt_embedding.weight
    assert model.output.weight is embedding
    lay_out_for_decoding(model)
    assert model.tgt_embedding.weight is embedding
    assert model.output.weight is not embedding
    assert torch.equal(model.output.weight, embedding)
