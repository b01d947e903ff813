"""Fused steps against plain PyTorch: results, types and gradients, in fp32, in bf16 and in both at
once.
"""

import math

import pytest
import torch
from torch import Tensor

from mt_cli.model.cpu_kernels import Dropout, add_scaled, biased_softmax
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
each_type = pytest.mark.parametrize("dtype", TOLERANCES, ids=["fp32", "bf16"])
TYPES = [(x, y) for x in TOLERANCES for y in TOLERANCES]
two_types = pytest.mark.parametrize(
    ("x_dtype", "y_dtype"), TYPES, ids=["fp32", "fp32+bf16", "bf16+fp32", "bf16"]
)


def random(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Numbers from -1 to 1."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(shape, generator=generator) - 1).to(dtype)


def gradients(out: Tensor, seed: int, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Gradients of `inputs` for a random gradient of `out`, the same for the same seed."""
    return torch.autograd.grad(out, inputs, random(*out.shape, seed=seed, dtype=out.dtype).to(out))


@each_type
@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_softmax_and_its_gradient_equal_torch(bias: Tensor, dtype: torch.dtype) -> None:
    scores = random(B, H, T, S, seed=1, dtype=dtype).mul_(10).requires_grad_()
    exact = scores.detach().double().requires_grad_()
    ours, theirs = biased_softmax(scores, bias, scale=SCALE), (SCALE * exact + bias).softmax(-1)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=TOLERANCES[dtype])
    (gradient,), (expected,) = gradients(ours, 2, scores), gradients(theirs, 2, exact)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.double(), expected, rtol=0, atol=TOLERANCES[dtype])


@each_type
def test_softmax_is_exactly_zero_where_the_bias_hides(dtype: torch.dtype) -> None:
    scores = random(B, H, T, S, seed=1, dtype=dtype).requires_grad_()
    weights = biased_softmax(scores, BIASES["causal"], scale=SCALE)
    hidden = (BIASES["causal"] == -math.inf).expand(B, H, T, S)
    (gradient,) = gradients(weights, 2, scores)
    assert weights[hidden].abs().sum() == 0
    assert gradient[hidden].abs().sum() == 0


@two_types
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


@two_types
def test_dropout_in_a_sum_drops_what_dropout_alone_drops(
    x_dtype: torch.dtype, y_dtype: torch.dtype
) -> None:
    x, y = random(B, T, S, seed=1, dtype=x_dtype), random(B, T, S, seed=2, dtype=y_dtype)
    dropout = Dropout(0.3).train()
    torch.manual_seed(5)
    ours = dropout.add_to(x, y)
    torch.manual_seed(5)
    theirs = x + dropout(y)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(
        ours, theirs, rtol=0, atol=2 * max(TOLERANCES[x_dtype], TOLERANCES[y_dtype])
    )


def test_rate_that_no_byte_stands_for_is_left_to_torch() -> None:
    x, y = torch.zeros(100_000), torch.ones(100_000)
    total = Dropout(0.001).train().add_to(x, y)
    torch.testing.assert_close(total[total > 0].mean(), torch.tensor(1 / 0.999))
    assert 0 < (total == 0).sum() < 200
