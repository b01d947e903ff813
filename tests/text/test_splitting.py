"""Splitting what is too long: everything fits, nothing is lost, and sentences come first."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.text.normalize import normalize
from mt_cli.translation.lines import split_text

texts = st.lists(
    st.sampled_from(["Hund", "z.", "B.", ".", "!", "…", ",", ";", " – ", " ", ".“ ", "?) ", "ä", "wort" * 9])
).map(lambda pieces: normalize("".join(pieces)))
any_text = st.text(max_size=60).map(normalize)


def at_most(num_characters: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= num_characters


def without_space(text: str) -> str:
    return "".join(text.split())


@given(texts | any_text, st.integers(1, 20))
def test_every_part_fits(text: str, longest: int) -> None:
    assert [part for part in split_text(text, at_most(longest)) if len(part) > longest] == []


@given(texts | any_text, st.integers(1, 20))
def test_nothing_but_white_space_is_lost(text: str, longest: int) -> None:
    parts = split_text(text, at_most(longest))
    assert without_space("".join(parts)) == without_space(text)


@given(texts, st.integers(9 * len("wort"), 60))
def test_no_word_is_broken_that_fits(text: str, longest: int) -> None:
    words = text.split()
    if all(len(word) <= longest for word in words):
        assert " ".join(split_text(text, at_most(longest))).split() == words


@given(texts | any_text)
def test_what_nothing_can_fit_ends_in_single_characters(text: str) -> None:
    parts = split_text(text, lambda part: part == "")
    assert [part for part in parts if len(part) > 1] == []
    assert without_space("".join(parts)) == without_space(text)


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        pytest.param(
            "Ein Hund. Zwei Hunde! Drei?", 20, ["Ein Hund.", "Zwei Hunde!", "Drei?"], id="sentences"
        ),
        pytest.param(
            "Er sagt: „Ein Hund.“ Sie lacht.",
            25,
            ["Er sagt: „Ein Hund.“", "Sie lacht."],
            id="quotation marks belong to the sentence",
        ),
        pytest.param(
            "Ein Hund, der bellt. Ja.",
            20,
            ["Ein Hund, der bellt.", "Ja."],
            id="a sentence that fits is not cut at its comma",
        ),
        pytest.param(
            "Ein Hund, der bellt, und eine Katze",
            25,
            ["Ein Hund, der bellt,", "und eine Katze"],
            id="the comma nearest to the middle",
        ),
        pytest.param("Ein Hund und eine Katze", 20, ["Ein Hund und", "eine Katze"], id="words"),
        pytest.param("aaaabbbb", 4, ["aaaa", "bbbb"], id="anywhere"),
        pytest.param(
            "Ende 3.5 Meter, weit", 15, ["Ende 3.5 Meter,", "weit"], id="a point within a number is no end"
        ),
        pytest.param(
            "Kurz. Ein Hund, der bellt. Kurz.",
            16,
            ["Kurz.", "Ein Hund,", "der bellt.", "Kurz."],
            id="only the sentence that is too long is cut further",
        ),
    ],
)
def test_text_is_cut_where_a_reader_would(text: str, longest: int, expected: list[str]) -> None:
    assert split_text(text, at_most(longest)) == expected


def test_a_very_long_word_needs_few_tries() -> None:
    tried: list[int] = []

    def fits(text: str) -> bool:
        tried.append(len(text))
        return len(text) <= 10

    assert "".join(split_text("x" * 100_000, fits)) == "x" * 100_000
    assert len(tried) < 40_000
