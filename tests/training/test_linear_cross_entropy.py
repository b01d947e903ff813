"""Pieces of one size, and the zeros that fill the last one up."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.training.linear_cross_entropy import PIECE_STEP, fill_up, piece_size


@given(num_tokens=st.integers(0, 10**5), most=st.integers(0, 10**4))
def test_pieces_hold_all_tokens_and_little_more(num_tokens: int, most: int) -> None:
    size = piece_size(num_tokens, most=most)
    num_pieces = -(-num_tokens // size)
    assert size % PIECE_STEP == 0
    assert size < max(1, most) + PIECE_STEP
    assert num_pieces * size - num_tokens < max(1, num_pieces) * PIECE_STEP + PIECE_STEP


def test_batches_of_any_number_of_tokens_have_few_sizes() -> None:
    sizes = {piece_size(num_tokens, most=524) for num_tokens in range(1000, 2000)}
    assert len(sizes) <= 7


def test_rows_are_filled_up_with_zeros() -> None:
    assert fill_up(torch.ones(2, 1, 3), 2).tolist() == [[[1.0] * 3, [0.0] * 3]] * 2


def test_what_is_full_stays_as_it_is() -> None:
    rows = torch.ones(4, 3)
    assert fill_up(rows, 4) is rows
