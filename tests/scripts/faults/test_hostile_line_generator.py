"""Hostile lines: the same ones each time, none of them two, and every kind among them."""

import random
import unicodedata

import pytest
from faults.hostile_text import KINDS, LONG, Draw, hostile_lines

LINES = hostile_lines(3000, seed=1)


def test_lines_are_as_many_as_asked_for_and_each_is_one() -> None:
    assert len(LINES) == 3000
    assert not any(b"\n" in line for line in LINES)


def test_same_seed_gives_the_same_lines() -> None:
    assert hostile_lines(3000, seed=1) == LINES
    assert hostile_lines(3000, seed=2) != LINES


def test_what_is_hostile_is_among_them() -> None:
    assert b"" in LINES
    assert any(line and not line.strip() for line in LINES)
    assert max(map(len, LINES)) > 1000
    assert any(b"<s>" in line for line in LINES)
    assert any(b"\xed\xa0\x80" in line for line in LINES)  # half a character
    valid = [text for text in (line.decode(errors="ignore") for line in LINES) if text]
    letters = set("".join(valid))
    assert {"\0", "\r", "\x1b", "\u2028", "\u202e", "\ufeff", "\u0308", "\U0001f600"} <= letters
    assert sum(unicodedata.category(letter) == "Cc" for letter in letters) > 50


@pytest.mark.parametrize("kind", [*KINDS, *LONG])
def test_every_kind_can_be_drawn_and_is_drawn_from_chance_alone(kind: Draw) -> None:
    first, again = ([kind(chance) for _ in range(20)] for chance in (random.Random(3), random.Random(3)))
    assert first == again
    assert any(first)
