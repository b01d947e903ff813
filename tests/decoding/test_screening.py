"""The largest logit found by way of integers against all logits in fp64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mt_cli.decoding.screening import Screen
from mt_cli.decoding.selection import BLOCK

ROUNDING = 1e-5
"""Of a logit in fp32, per unit of its largest term."""


def normal(*shape: int, seed: int, std: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * std


def exact(hidden: Tensor, weight: Tensor) -> Tensor:
    """All logits, (R, V)."""
    return hidden.double() @ weight.double().t()


def assert_largest(found: Tensor, hidden: Tensor, weight: Tensor) -> None:
    logits = exact(hidden, weight)
    short = logits.amax(-1) - logits.gather(1, found.unsqueeze(1)).squeeze(1)
    assert (short <= ROUNDING * hidden.abs().amax(-1) * weight.abs().max() * weight.shape[1]).all()


@given(
    num_rows=st.integers(1, 9),
    vocab_size=st.integers(1, 5 * BLOCK),
    d_model=st.integers(2, 80),  # PyTorch's product is wrong for 1
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
    seed=st.integers(0, 1000),
)
def test_finds_the_largest_logit(
    num_rows: int, vocab_size: int, d_model: int, scale: float, seed: int
) -> None:
    hidden = normal(num_rows, d_model, seed=seed, std=scale)
    weight = normal(vocab_size, d_model, seed=seed + 1, std=0.1)
    assert_largest(Screen(weight).argmax(hidden), hidden, weight)


@given(spread=st.floats(1e-4, 1.0), outlier=st.sampled_from([0.0, 5.0, 100.0]), seed=st.integers(0, 200))
def test_finds_it_among_logits_that_integers_cannot_tell_apart(
    spread: float, outlier: float, seed: int
) -> None:
    """Rows that hardly differ, and one large weight that makes all integers coarse."""
    weight = normal(1, 32, seed=seed) + normal(300, 32, seed=seed + 1, std=spread)
    weight[7, 3] += outlier
    hidden = normal(20, 32, seed=seed + 2)
    hidden[0, 5] += outlier
    assert_largest(Screen(weight).argmax(hidden), hidden, weight)


@given(
    weight=st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=150),
    hidden=st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=6),
)
def test_of_equals_the_first_is_chosen(weight: list[list[int]], hidden: list[list[int]]) -> None:
    rows, columns = torch.tensor(hidden).float(), torch.tensor(weight).float()
    assert Screen(columns).argmax(rows).tolist() == exact(rows, columns).argmax(-1).tolist()


@pytest.mark.parametrize("forbidden", [[0], [0, 1, 2], list(range(64)), list(range(69))])
def test_forbidden_ids_are_never_chosen(forbidden: list[int]) -> None:
    weight, hidden = normal(70, 16, seed=0), normal(200, 16, seed=1)
    found = Screen(weight, forbidden_ids=forbidden).argmax(hidden)
    logits = exact(hidden, weight)
    logits[:, forbidden] = -torch.inf
    assert found.tolist() == logits.argmax(-1).tolist()


def test_neither_nothing_nor_what_is_no_number_leads_out_of_the_vocabulary() -> None:
    hidden = torch.zeros(3, 16)
    hidden[1] = torch.nan
    hidden[2] = 1
    found = Screen(normal(70, 16, seed=0)).argmax(hidden)
    assert found[0] == 0
    assert 0 <= found[1] < 70
    assert Screen(torch.zeros(5, 16)).argmax(hidden[2:]).tolist() == [0]


def test_rounding_to_integers_alone_would_be_wrong() -> None:
    """So that the tests above can fail."""
    weight, hidden = normal(1000, 64, seed=0), normal(500, 64, seed=1)
    rounded = (hidden * 20).round() @ (weight * 20).round().t()
    assert (rounded.argmax(-1) != exact(hidden, weight).argmax(-1)).any()
