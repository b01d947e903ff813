"""Kernels for a CPU against plain PyTorch: dropout, steps that are fused, matrices laid out for
decoding.
"""

import math

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model, with_bos
from torch import Tensor, nn

from mt_cli.model.cpu_kernels import (
    CAN_PACK,
    Dropout,
    PackedLinear,
    add_scaled,
    bf16_softmax,
    transpose_weights_,
)
from mt_cli.model.transformer import as_bias, causal_mask

B, H, T, S = 2, 3, 5, 7
SCALE = 0.3
BIASES = {
    "padding": as_bias(torch.tensor([[True] * 7, [True, True, False, True, False, False, False]]))[
        :, None, None, :
    ],
    "causal": as_bias(causal_mask(S, device=torch.device("cpu"))[:T]),
}
TOLERANCES = {torch.float32: 1e-6, torch.bfloat16: 2**-8}
"""Of numbers up to 1; bf16 has eight binary digits."""


def dropped(x: Tensor, p: float, *, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    out: Tensor = Dropout(p).train()(x)
    return out


def random(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Numbers from -1 to 1."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(shape, generator=generator) - 1).to(dtype)


def gradients(out: Tensor, seed: int, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Gradients of `inputs` for a random gradient of `out`, the same for the same seed."""
    return torch.autograd.grad(out, inputs, random(*out.shape, seed=seed, dtype=out.dtype).to(out))


# Dropout


@pytest.mark.parametrize("dtype", TOLERANCES, ids=["fp32", "bf16"])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_of_zeros_is_the_rate_and_the_mean_is_kept(p: float, dtype: torch.dtype) -> None:
    # Different numbers, so that the rounding of their products evens out.
    x = torch.linspace(1, 2, 200_000).to(dtype)
    out = dropped(x, p)
    # Four standard deviations of the draws, and the rounding to multiples of 1/256.
    share = (out == 0).float().mean().item()
    assert share == pytest.approx(p, abs=4 * (p * (1 - p) / 2e5) ** 0.5 + 1 / 512)
    mean = (out.double().mean() / x.double().mean()).item()
    # Four standard deviations, of which the spread of the numbers is a part: E x² / (E x)² = 28/27.
    assert mean == pytest.approx(1, abs=4 * (28 / 27 * p / (1 - p) / 2e5) ** 0.5)


def test_neighbours_are_dropped_independently() -> None:
    is_zero = (dropped(torch.ones(100_000, 8), 0.5) == 0).double()
    correlation = torch.corrcoef(is_zero.T) - torch.eye(8, dtype=torch.float64)
    assert correlation.abs().max() < 0.015


@pytest.mark.parametrize("size", [1, 7, 8, 9, 23])
def test_sizes_that_eight_does_not_divide_are_dropped_too(size: int) -> None:
    values = torch.stack([dropped(torch.ones(size), 0.5, seed=seed) for seed in range(40)])
    assert ((values == 0).any(0) & (values == 2).any(0)).all()


def test_gradient_is_zero_exactly_where_the_output_is() -> None:
    x = torch.ones(1001, requires_grad=True)
    out = dropped(x, 0.3)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient, out.detach(), rtol=0, atol=0)


# Fused steps


@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_softmax_and_its_gradient_equal_torch(bias: Tensor) -> None:
    scores = random(B, H, T, S, seed=1, dtype=torch.bfloat16).mul_(10).requires_grad_()
    exact = scores.detach().double().requires_grad_()
    ours = bf16_softmax(scores, bias, scale=SCALE)
    theirs = (SCALE * exact + bias).softmax(-1)
    (gradient,) = gradients(ours, 2, scores)
    (expected,) = gradients(theirs, 2, exact)
    assert ours.dtype == gradient.dtype == torch.bfloat16
    tolerance = TOLERANCES[torch.bfloat16]
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=tolerance)
    torch.testing.assert_close(gradient.double(), expected, rtol=0, atol=tolerance)
    hidden = (bias == -math.inf).expand(B, H, T, S)
    assert ours[hidden].abs().sum() == gradient[hidden].abs().sum() == 0


@pytest.mark.parametrize("x_dtype", TOLERANCES, ids=["fp32", "bf16"])
@pytest.mark.parametrize("y_dtype", TOLERANCES, ids=["fp32", "bf16"])
def test_sum_and_its_gradients_equal_torch(x_dtype: torch.dtype, y_dtype: torch.dtype) -> None:
    x = random(B, T, S, seed=1, dtype=x_dtype).requires_grad_()
    y = random(B, T, S, seed=2, dtype=y_dtype).requires_grad_()
    exact_x, exact_y = (each.detach().double().requires_grad_() for each in (x, y))
    kept = (random(B, T, S, seed=3, dtype=torch.float32) > 0).to(torch.uint8)
    ours, theirs = add_scaled(x, y, kept, scale=1.25), exact_x + 1.25 * exact_y * kept
    assert ours.dtype == (x + y).dtype
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=2 * TOLERANCES[ours.dtype])
    of_ours, expected = gradients(ours, 4, x, y), gradients(theirs, 4, exact_x, exact_y)
    assert [each.dtype for each in of_ours] == [x_dtype, y_dtype]
    tolerance = 2 * max(TOLERANCES[x_dtype], TOLERANCES[y_dtype])
    torch.testing.assert_close(
        [each.double() for each in of_ours], [*expected], rtol=0, atol=tolerance
    )


# Matrices laid out for decoding


@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
@pytest.mark.parametrize("backend", BACKENDS)
@torch.no_grad()
def test_columns_of_every_matrix_lie_side_by_side_and_logits_stay(tie: str, backend: str) -> None:
    src, tgt = random_ids(3, 6, lengths=[6, 2, 4]), with_bos(random_ids(3, 5, seed=1))
    model = randomised(tiny_model(backend, decoder_layers=2, tie=tie, output_bias=True, d_ff=24))
    expected, embedding = model(src, tgt), model.tgt_embedding.weight
    transpose_weights_(model)
    torch.testing.assert_close(model(src, tgt), expected, rtol=0, atol=2e-6)
    matrices = {name: p for name, p in model.named_parameters() if p.dim() == 2}
    strides = {name: p.stride()[0] for name, p in matrices.items() if "embedding" not in name}
    assert {"output.weight", "backend.encoder.layers.0.self_attn.in_proj_weight"} <= set(strides)
    assert set(strides.values()) == {1}
    assert model.tgt_embedding.weight is embedding  # a tied output layer became a copy
    assert model.output.weight is not embedding


@pytest.mark.skipif(not CAN_PACK, reason="this processor has no oneDNN")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (300, 24), (3, 5, 24)], ids=str)
@torch.no_grad()
def test_a_packed_layer_computes_the_same(shape: tuple[int, ...], bias: bool) -> None:
    linear = nn.Linear(24, 500, bias=bias)
    transpose_weights_(linear)
    x = torch.randn(shape)
    torch.testing.assert_close(PackedLinear(linear)(x), linear(x), rtol=0, atol=1e-5)


@pytest.mark.skipif(not CAN_PACK, reason="this processor has no oneDNN")
def test_a_packed_layer_shares_its_matrix_with_the_embedding() -> None:
    model = tiny_model(tie="all")
    model.output = PackedLinear(model.output)
    transpose_weights_(model)
    assert model.output.weight is model.tgt_embedding.weight
