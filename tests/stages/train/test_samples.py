"""Samples as people see them: nothing hidden, nothing endless, nothing too wide."""

import pytest

from mt_cli.stages.train.samples import Sample, columns, cut, without_repetition


def test_sample_shows_source_translation_and_reference() -> None:
    assert Sample("Ein Hund.", "A dog.", "One dog.").lines() == [
        "  source       Ein Hund.",
        "  translation  A dog.",
        "  reference    One dog.",
    ]


def test_empty_translation_is_a_label_alone() -> None:
    assert Sample("Ein Hund.", "", "A dog.").lines()[1] == "  translation"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" ".join(["the"] * 57), "the the the … (×57)"),
        ("a " + "b " * 4 + "c", "a b b b … (×4) c"),
        ("a b b b c", "a b b b c"),
        ("is going to " * 5 + "go", "is going to is going to is going to … (×5) go"),
        ("a a a a b b b b", "a a a … (×4) b b b … (×4)"),
        ("the the the theater", "the the the theater"),
        ("the the the the theater", "the the the … (×4) theater"),
        ("ha" * 40, "hahaha … (×40)"),
        ("-" * 11, "-" * 11),
        ("", ""),
    ],
)
def test_endless_repetition_is_cut_and_counted(text: str, shown: str) -> None:
    assert without_repetition(text) == shown


@pytest.mark.parametrize(
    ("line", "width", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("ab cdefg", 4, "ab…"),
        ("犬犬犬", 6, "犬犬犬"),
        ("犬犬犬犬", 6, "犬犬…"),
        ("a\u0301" * 6, 6, "a\u0301" * 6),
        ("abc", None, "abc"),
    ],
)
def test_line_is_cut_to_the_columns_there_are(line: str, width: int | None, shown: str) -> None:
    assert cut(line, width) == shown


@pytest.mark.parametrize("letter", ["x ", "犬", "\x1b", "a\u0301"])
def test_no_line_of_a_sample_is_wider_than_asked(letter: str) -> None:
    text = "".join(f"{letter}{i}" for i in range(60))
    assert max(columns(line) for line in Sample(text, text, text).lines(width=80)) <= 80
