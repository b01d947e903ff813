"""Whether numbers are finite, of many tensors at once."""

import math

import pytest
import torch

from mt_cli.stages.train.divergence import all_finite


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_is_found_among_many(bad: float) -> None:
    tensors = [torch.zeros(3, 4), torch.ones(()), torch.arange(5)]
    assert all_finite(tensors)
    tensors[0][2, 3] = bad
    assert not all_finite(tensors)


def test_the_largest_numbers_are_finite() -> None:
    assert all_finite([torch.full((1000,), torch.finfo(torch.float32).max)])


def test_no_tensors_are_finite() -> None:
    assert all_finite([])
