"""Dropout: how much it drops, that it stays unbiased, and what its gradient is."""

import pytest
import torch
from torch import Tensor

from mt_cli.model.cpu_kernels import Dropout


def dropped(x: Tensor, p: float, *, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    out: Tensor = Dropout(p).train()(x)
    return out


@pytest.mark.parametrize("p", [0.1, 0.2, 0.25, 0.5, 0.9])
def test_share_of_zeros_is_the_rate(p: float) -> None:
    share = (dropped(torch.ones(200_000), p) == 0).float().mean().item()
    # Four standard deviations of the draws, and the rounding to multiples of 1/256.
    assert share == pytest.approx(p, abs=4 * (p * (1 - p) / 2e5) ** 0.5 + 1 / 512)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_mean_is_kept(p: float, dtype: torch.dtype) -> None:
    # Different numbers, so that the rounding of their products evens out.
    x = torch.linspace(1, 2, 200_000).to(dtype)
    mean = (dropped(x, p).double().mean() / x.double().mean()).item()
    # Four standard deviations, of which the spread of the numbers is a part: E x² / (E x)² = 28/27.
    assert mean == pytest.approx(1, abs=4 * (28 / 27 * p / (1 - p) / 2e5) ** 0.5)


def test_neighbours_are_dropped_independently() -> None:
    is_zero = (dropped(torch.ones(100_000, 8), 0.5) == 0).double()
    correlation = torch.corrcoef(is_zero.T) - torch.eye(8, dtype=torch.float64)
    assert correlation.abs().max() < 0.015


@pytest.mark.parametrize("size", [1, 7, 8, 9, 23])
def test_sizes_that_eight_does_not_divide_are_dropped_too(size: int) -> None:
    values = torch.stack([dropped(torch.ones(size), 0.5, seed=seed) for seed in range(100)])
    assert ((values == 0).any(0) & (values == 2).any(0)).all()


def test_same_seed_drops_the_same() -> None:
    x = torch.ones(100)
    assert torch.equal(dropped(x, 0.5, seed=1), dropped(x, 0.5, seed=1))


def test_gradient_is_zero_exactly_where_the_output_is() -> None:
    x = torch.ones(1001, requires_grad=True)
    out = dropped(x, 0.3)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient, out.detach(), rtol=0, atol=0)
