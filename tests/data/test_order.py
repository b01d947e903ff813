"""The order of an epoch, which is computed: each number once, in an order like any other."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.data.order import Permutation, WeightedPermutation


def order(size: int, *, seed: int = 0) -> list[int]:
    return [int(i) for i in Permutation(size, np.random.default_rng(seed)).slice(0, size)]


def mixed(sizes: list[int], shares: list[float], *, seed: int = 0) -> list[int]:
    shuffle = WeightedPermutation(sizes, shares, np.random.default_rng(seed))
    return [int(i) for i in shuffle.slice(0, len(shuffle))]


def cut(shuffle: Permutation | WeightedPermutation, size: int, *, step: int) -> list[int]:
    """The whole order, slice by slice."""
    slices = [shuffle.slice(begin, begin + step) for begin in range(0, size, step)]
    return [int(i) for each in slices for i in each]


@settings(max_examples=40)
@given(st.integers(0, 3000), st.integers(0, 5))
def test_every_number_comes_once(size: int, seed: int) -> None:
    assert sorted(order(size, seed=seed)) == list(range(size))


@settings(max_examples=40)
@given(st.integers(1, 200), st.integers(5, 60))
def test_slices_are_parts_of_one_order(size: int, step: int) -> None:
    shuffle = Permutation(size, np.random.default_rng(1))
    assert cut(shuffle, size, step=step) == order(size, seed=1)


@pytest.mark.parametrize("step", [1, 7, 60])
def test_slices_of_a_mixture_are_parts_of_one_order(step: int) -> None:
    shuffle = WeightedPermutation([50, 30], [1.0, 0.5], np.random.default_rng(1))
    assert cut(shuffle, len(shuffle), step=step) == mixed([50, 30], [1.0, 0.5], seed=1)


def test_a_thousand_million_need_no_list() -> None:
    size = 10**9
    ends = Permutation(size, np.random.default_rng(0)).slice(size - 1000, size + 5)
    assert len(set(ends.tolist())) == 1000
    assert 0 <= ends.min() <= ends.max() < size
    assert abs(ends.mean() / size - 0.5) < 0.05


def test_every_number_is_as_likely_in_every_place() -> None:
    # 7 numbers in 7 places, 980 orders: each cell expects 140, deviation 11.
    counts = np.zeros((7, 7), dtype=int)
    for seed in range(980):
        counts[np.arange(7), order(7, seed=seed)] += 1
    assert abs(counts - 140).max() < 5 * 11


ranges = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40)
@given(ranges, st.integers(0, 5))
def test_each_range_comes_as_often_as_its_share_says(
    drawn: list[tuple[int, float]], seed: int
) -> None:
    sizes, shares = [size for size, _ in drawn], [share for _, share in drawn]
    counts = Counter(mixed(sizes, shares, seed=seed))
    begin = 0
    for size, share in drawn:
        of_range = [counts[i] for i in range(begin, begin + size)]
        assert sum(of_range) == max(min(size, 1), round(size * share))
        assert set(of_range) <= {int(share), int(share) + 1}  # none twice before all are there once
        begin += size
    assert counts.keys() <= set(range(begin))
