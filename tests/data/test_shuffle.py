"""A shuffle that is computed: each number once, in an order like any other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.data.shuffle import Shuffle


def order(size: int, *, seed: int = 0) -> list[int]:
    return [int(i) for i in Shuffle(size, np.random.default_rng(seed)).stretch(0, size)]


@given(st.integers(0, 3000), st.integers(0, 5))
def test_every_number_comes_once(size: int, seed: int) -> None:
    assert sorted(order(size, seed=seed)) == list(range(size))


@given(st.integers(1, 500), st.integers(1, 60))
def test_stretches_are_cuts_of_one_order(size: int, step: int) -> None:
    shuffle = Shuffle(size, np.random.default_rng(1))
    cut = [i for begin in range(0, size, step) for i in shuffle.stretch(begin, begin + step).tolist()]
    assert cut == order(size, seed=1)


def test_seed_decides_the_order() -> None:
    assert order(100, seed=3) == order(100, seed=3) != order(100, seed=4)


def test_a_thousand_million_need_no_list() -> None:
    size = 10**9
    ends = Shuffle(size, np.random.default_rng(0)).stretch(size - 1000, size + 5)
    assert len(set(ends.tolist())) == 1000
    assert 0 <= ends.min() <= ends.max() < size
    assert abs(ends.mean() / size - 0.5) < 0.05


def test_every_number_is_as_likely_in_every_place() -> None:
    # 7 numbers in 7 places, 4,900 orders: each cell expects 700, deviation 24.
    counts = np.zeros((7, 7), dtype=int)
    for seed in range(4900):
        counts[np.arange(7), order(7, seed=seed)] += 1
    assert abs(counts - 700).max() < 5 * 24


def test_neighbours_are_strangers() -> None:
    places = np.array(order(10_000))
    steps = np.abs(np.diff(places))
    # The mean distance of two random numbers is a third of the range.
    assert steps.mean() == pytest.approx(10_000 / 3, rel=0.03)
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.04
