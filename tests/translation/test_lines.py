"""Parts of a line, joined again, and what is copied of a line."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.translation.lines import ADDRESS, Translation, has_words, joined, read_line

DOG = Translation("A dog.", -1.5, ("A", "dog", "."), ("Ein", "Hund", "."), ((0, 0), (1, 1), (2, 2)))
CAT = Translation("Cats!", -0.5, ("Cats", "!"), ("Die", "Katzen", "hier", "!"), ((1, 0), (3, 1)))
NOTHING = Translation("", -0.25, (), ("Ach",), ())


def test_one_part_is_the_whole() -> None:
    assert joined([DOG], space=" ") is DOG


def test_places_in_later_parts_follow_those_of_earlier_ones() -> None:
    whole = joined([DOG, CAT, DOG], space=" ")
    assert whole.text == "A dog. Cats! A dog."
    assert whole.score == -3.5
    assert whole.tokens == (*DOG.tokens, *CAT.tokens, *DOG.tokens)
    assert whole.src_tokens == (*DOG.src_tokens, *CAT.src_tokens, *DOG.src_tokens)
    assert whole.alignment == ((0, 0), (1, 1), (2, 2), (4, 3), (6, 4), (7, 5), (8, 6), (9, 7))


def test_part_without_tokens_still_counts_in_the_source() -> None:
    whole = joined([NOTHING, DOG], space=" ")
    assert whole.text == "A dog."
    assert whole.alignment == ((1, 0), (2, 1), (3, 2))


SIMPLE_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|\S+@\S+\.\S+")
"""What an address is, with a pattern that takes cubic time."""


@given(st.text(alphabet="a@./: \u200d😀", max_size=30) | st.text(max_size=20))
def test_addresses_are_those_of_the_simple_pattern(text: str) -> None:
    found = [each.span() for each in ADDRESS.finditer(text)]
    assert found == [each.span() for each in SIMPLE_ADDRESS.finditer(text)]


@pytest.mark.parametrize("piece", ["@", "a@", "name@host,", "a@b.", "漢", "www.", "😀"])
def test_a_long_word_takes_linear_time(piece: str) -> None:
    text = piece * (20_000 // len(piece))
    began_at = time.process_time()
    read_line(text, knows=lambda _: False)
    has_words(text)
    assert time.process_time() - began_at < 2  # with cubic time, hours
