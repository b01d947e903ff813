"""The length penalty by which hypotheses are ranked."""

import pytest

from mt_cli.decoding.search import wu_length_penalty


@pytest.mark.parametrize(
    ("length", "alpha", "expected"), [(7, 0.0, 1.0), (7, 1.0, 2.0), (19, 0.5, 2.0)]
)
def test_length_penalty_is_that_of_the_paper(length: int, alpha: float, expected: float) -> None:
    assert wu_length_penalty(length, alpha) == expected
