"""Numbers in digits that a translation has to keep."""

import pytest

from mt_cli.text.numbers import changes_a_number


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("Ein Hund.", "A dog."),
        ("15 Kinder", "15 children"),
        ("3 Hunde und zwei Katzen", "three dogs and two cats"),
        ("3 Hunde und zwei Katzen", "Three dogs and 2 cats"),
        ("1 Hund", "A dog"),
        ("3,50 Euro", "€3.50"),
        ("1.000 Leute um 15:30", "1,000 people at 15.30"),
        ("5 Männer und 17 Frauen", "17 women and 5 men"),
        ("am 3.5.2020", "on 3/5/2020"),
        ("٣٤ Hunde", "34 dogs"),
        ("100 Leute", "a hundred people"),
        ("21 Hunde", "twenty-one dogs"),
        ("200 Leute und 2000 Hunde", "two hundred people and two thousand dogs"),
        ("einundzwanzig Hunde", "21 dogs"),
        ("zweihundert Leute", "200 people"),
        ("der 1. Platz am 3. Mai", "the first place on the third of May"),
        ("am 10.12.2020", "on 12/10/2020"),
    ],
)
def test_number_that_is_kept_or_written_out_is_no_change(source: str, translation: str) -> None:
    assert not changes_a_number(source, translation, src_lang="de", tgt_lang="en")


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("15 Kinder", "1 children"),
        ("1984 Kinder", "19 children"),
        ("250 Kinder", "children"),
        ("15 Kinder", "five children"),
        ("Kinder", "12 children"),
        ("3 Hunde und 15 Katzen", "three dogs and cats"),
        ("3,50 Euro", "350s and 3"),
        ("3,50 Euro", "350 euros"),
        ("um 15:30", "at 1530"),
        ("10-15 Leute", "1015 people"),
        ("7" * 5000, "7"),
        ("7 und 7", "7"),
    ],
)
def test_number_that_is_lost_or_another_is_a_change(source: str, translation: str) -> None:
    assert changes_a_number(source, translation, src_lang="de", tgt_lang="en")


@pytest.mark.parametrize(("number", "is_change"), [("3", False), ("250", True)])
def test_in_a_language_without_a_list_only_small_numbers_may_be_words(
    number: str, is_change: bool
) -> None:
    changed = changes_a_number(f"{number} psy", "dogs", src_lang="cs", tgt_lang="pl")
    assert changed == is_change
