"""Initial weights: their spread, by kind of parameter."""

import math

import pytest
import torch
from tiny import BACKENDS, tiny_model
from torch import Tensor

from mt_cli.model.model import TranslationModel

D, F, V = 64, 128, 500


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def wide_model(backend: str, **options: object) -> TranslationModel:
    defaults = {"d_model": D, "d_ff": F, "output_bias": True}
    return tiny_model(backend, src_vocab_size=V, tgt_vocab_size=V, options=defaults | options)


def xavier_bound(rows: int, columns: int) -> float:
    return math.sqrt(6 / (rows + columns))


def assert_uniform(matrix: Tensor, bound: float) -> None:
    """Uniform numbers between ±bound come close to it, never pass it, and deviate by bound/√3."""
    assert 0.98 * bound < matrix.abs().max().item() <= bound
    assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("name", ["encoder.layers.1.self_attn", "decoder.layers.0.multihead_attn"])
def test_each_projection_of_a_packed_one_has_the_bound_of_its_own(backend: str, name: str) -> None:
    packed = wide_model(backend).get_parameter(f"backend.{name}.in_proj_weight")
    for projection in packed.chunk(3):
        assert_uniform(projection, xavier_bound(D, D))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("backend.encoder.layers.0.self_attn.out_proj.weight", (D, D)),
        ("backend.decoder.layers.0.linear1.weight", (F, D)),
        ("backend.decoder.layers.0.linear2.weight", (D, F)),
        ("output.weight", (V, D)),
    ],
)
def test_matrices_are_xavier_uniform(backend: str, name: str, shape: tuple[int, int]) -> None:
    matrix = wide_model(backend).get_parameter(name)
    assert matrix.shape == shape
    assert_uniform(matrix, xavier_bound(*shape))


@pytest.mark.parametrize(
    "name", ["output.weight", "backend.encoder.layers.0.self_attn.in_proj_weight"]
)
def test_normal_kind_deviates_by_a_fiftieth(backend: str, name: str) -> None:
    matrix = wide_model(backend, init="normal").get_parameter(name)
    assert matrix.std().item() == pytest.approx(0.02, rel=0.05)
    assert matrix.abs().max().item() > 0.06  # no uniform number goes beyond √3 deviations


@pytest.mark.parametrize("kind", ["xavier", "normal"])
@pytest.mark.parametrize("tie", ["none", "all"])
def test_embeddings_deviate_by_one_over_root_d(backend: str, tie: str, kind: str) -> None:
    model = wide_model(backend, tie=tie, init=kind)
    for embedding in (model.src_embedding, model.tgt_embedding):
        assert embedding.weight.std().item() == pytest.approx(1 / math.sqrt(D), rel=0.03)
        assert embedding.weight.mean().item() == pytest.approx(0, abs=0.005)


def test_learned_positions_start_at_zero(backend: str) -> None:
    model = wide_model(backend, positions="learned", max_len=128)
    for positions in (model.src_positions, model.tgt_positions):
        assert positions.weight.abs().max().item() == 0.0


def test_biases_are_zero(backend: str) -> None:
    biases = [
        p.detach() for name, p in wide_model(backend).named_parameters() if name.endswith("bias")
    ]
    assert len(biases) > 10
    assert torch.cat(biases).abs().max() == 0


def test_norm_gains_are_one(backend: str) -> None:
    parameters = wide_model(backend).named_parameters()
    gains = [p.detach() for name, p in parameters if "norm" in name and name.endswith("weight")]
    assert len(gains) == 2 * 2 + 3 + 2  # of two encoder layers, a decoder layer, and both ends
    assert torch.equal(torch.cat(gains), torch.ones(len(gains) * D))
