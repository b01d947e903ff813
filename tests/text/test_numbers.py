"""Numbers in digits that a translation has to keep."""

import pytest

from mt_cli.text.language import base_language, detected_language
from mt_cli.text.numbers import changes_a_number

KEPT = [
    ("Ein Hund.", "A dog."),
    ("3 Hunde und zwei Katzen", "Three dogs and 2 cats"),
    ("1 Hund", "A dog"),
    ("3,50 Euro", "€3.50"),
    ("1.000 Leute um 15:30", "1,000 people at 15.30"),
    ("am 3.5.2020", "on 3/5/2020"),
    ("٣٤ Hunde", "34 dogs"),
    ("100 Leute", "a hundred people"),
    ("200 Leute und 2000 Hunde", "two hundred people and two thousand dogs"),
    ("einundzwanzig Hunde", "21 dogs"),
    ("der 1. Platz am 3. Mai", "the first place on the third of May"),
]
CHANGED = [
    ("15 Kinder", "1 children"),
    ("15 Kinder", "five children"),
    ("Kinder", "12 children"),
    ("3 Hunde und 15 Katzen", "three dogs and cats"),
    ("3,50 Euro", "350 euros"),
    ("10-15 Leute", "1015 people"),
    ("7 und 7", "7"),
    ("7" * 5000, "7"),
]


@pytest.mark.parametrize(("source", "translation"), KEPT)
def test_number_that_is_kept_or_written_out_is_no_change(source: str, translation: str) -> None:
    assert not changes_a_number(source, translation, src_lang="de", tgt_lang="en")


@pytest.mark.parametrize(("source", "translation"), CHANGED)
def test_number_that_is_lost_or_another_is_a_change(source: str, translation: str) -> None:
    assert changes_a_number(source, translation, src_lang="de", tgt_lang="en")


def test_in_a_language_without_a_list_only_small_numbers_may_be_words() -> None:
    assert not changes_a_number("3 psy", "dogs", src_lang="cs", tgt_lang="pl")
    assert changes_a_number("250 psy", "dogs", src_lang="cs", tgt_lang="pl")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Hund", "de"), ("dog", "en"), ("A dog runs.", "en"), ("Ein Hund rennt.", "de")],
)
def test_language_is_one_of_those_that_there_are(text: str, expected: str) -> None:
    language, probability = detected_language(text, among=("de", "en"))
    assert language == expected
    assert 0.5 < probability <= 1


@pytest.mark.parametrize(
    ("text", "first"), [("", "de"), ("123", "de"), ("🐶 !", "de"), ("pes", "hsb")]
)
def test_what_cannot_be_told_is_the_first_for_certain_not(text: str, first: str) -> None:
    assert detected_language(text, among=(first, "en")) == (first, 0.0)


@pytest.mark.parametrize(
    ("code", "language"),
    [("deu", "de"), ("zh-TW", "zh"), ("jpn", "ja"), ("hsb", "hsb"), ("nb_NO", "no")],
)
def test_a_language_has_one_code(code: str, language: str) -> None:
    assert base_language(code) == language
