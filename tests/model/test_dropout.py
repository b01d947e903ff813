"""Dropout: how much it drops, that it stays unbiased, and what its gradient is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mt_cli.model.dropout import Dropout


def dropped(x: Tensor, p: float, *, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    out: Tensor = Dropout(p).train()(x)
    return out


@pytest.mark.parametrize("p", [0.1, 0.2, 0.25, 0.5, 0.9])
def test_share_of_zeros_is_the_rate(p: float) -> None:
    share = (dropped(torch.ones(1_000_000), p) == 0).float().mean().item()
    # Four standard deviations of a million draws, and the rounding to multiples of 1/256.
    assert share == pytest.approx(p, abs=4 * (p * (1 - p) / 1e6) ** 0.5 + 1 / 512)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_mean_is_kept(p: float, dtype: torch.dtype) -> None:
    # Different numbers, so that the rounding of their products evens out.
    x = torch.linspace(1, 2, 1_000_000).to(dtype)
    mean = (dropped(x, p).double().mean() / x.double().mean()).item()
    # Four standard deviations, of which the spread of the numbers is a part: E x² / (E x)² = 28/27.
    assert mean == pytest.approx(1, abs=4 * (28 / 27 * p / (1 - p) / 1e6) ** 0.5)


def test_what_is_kept_is_scaled_alike() -> None:
    assert set(dropped(torch.full((1000,), 3.0), 0.25).tolist()) == {0.0, 4.0}


def test_every_place_of_a_draw_is_dropped_as_often() -> None:
    # Eight elements share one random number; none of the eight may fare better.
    shares = (dropped(torch.ones(100_000, 8), 0.5) == 0).float().mean(0)
    torch.testing.assert_close(shares, torch.full((8,), 0.5), rtol=0, atol=0.007)


def test_neighbours_are_dropped_independently() -> None:
    is_zero = (dropped(torch.ones(100_000, 8), 0.5) == 0).double()
    correlation = torch.corrcoef(is_zero.T) - torch.eye(8, dtype=torch.float64)
    assert correlation.abs().max() < 0.015


@given(st.lists(st.integers(0, 5), min_size=0, max_size=4))
def test_any_shape_is_kept(shape: list[int]) -> None:
    assert dropped(torch.ones(shape), 0.5).shape == tuple(shape)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 23])
def test_sizes_that_eight_does_not_divide_are_dropped_too(size: int) -> None:
    values = torch.stack([dropped(torch.ones(size), 0.5, seed=seed) for seed in range(100)])
    assert ((values == 0).any(0) & (values == 2).any(0)).all()


def test_strided_input_keeps_its_values_in_place() -> None:
    x = torch.arange(1.0, 13.0).view(3, 4).T
    out = dropped(x, 0.5)
    assert torch.equal(out, torch.where(out == 0, 0.0, 2 * x))


def test_rate_of_almost_one_still_gives_numbers() -> None:
    assert dropped(torch.ones(10_000), 0.999).isfinite().all()


def test_rate_of_zero_changes_nothing() -> None:
    x = torch.randn(5, 7)
    assert dropped(x, 0.0) is x


def test_eval_mode_changes_nothing() -> None:
    x = torch.randn(5, 7)
    assert Dropout(0.5).eval()(x) is x


def test_same_seed_drops_the_same() -> None:
    x = torch.ones(100)
    assert torch.equal(dropped(x, 0.5, seed=1), dropped(x, 0.5, seed=1))


def test_two_calls_drop_differently() -> None:
    dropout, x = Dropout(0.5), torch.ones(100)
    assert not torch.equal(dropout(x), dropout(x))


def test_gradient_is_zero_exactly_where_the_output_is() -> None:
    x = torch.ones(1001, requires_grad=True)
    out = dropped(x, 0.3)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient, out.detach(), rtol=0, atol=0)


def test_dropout_passes_gradcheck() -> None:
    x = torch.randn(13, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: dropped(y, 0.4), (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_type_is_kept(dtype: torch.dtype) -> None:
    assert dropped(torch.ones(9, dtype=dtype), 0.5).dtype == dtype
