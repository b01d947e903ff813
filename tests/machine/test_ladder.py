"""The ladder of sizes: close above what is asked for, and with few rungs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.data.batching import rung, rungs, rungs_below


def test_ladder_has_four_rungs_to_each_doubling() -> None:
    found = sorted(set(rungs(np.arange(1, 65)).tolist()))
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]


@given(st.integers(1, 10**6))
def test_next_rung_is_less_than_a_quarter_above(size: int) -> None:
    assert size <= rung(size) < 1.25 * size
    assert rung(rung(size)) == rung(size)


def test_each_rung_knows_the_one_below() -> None:
    found = sorted(set(rungs(np.arange(1, 1000)).tolist()))
    assert rungs_below(np.array(found)).tolist() == [0, *found[:-1]]
