"""Which language a text is in, among those that are asked for."""

import pytest

from mt_cli.text.language import detected_language


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Hund", "de"), ("dog", "en"), ("A dog runs.", "en"), ("Ein Hund rennt.", "de")],
)
def test_language_is_one_of_those_that_there_are(text: str, expected: str) -> None:
    language, probability = detected_language(text, among=("de", "en"))
    assert language == expected
    assert 0.5 < probability <= 1


@pytest.mark.parametrize("text", ["", "123", "🐶 !"])
def test_what_cannot_be_told_is_the_first_for_certain_not(text: str) -> None:
    assert detected_language(text, among=("de", "en")) == ("de", 0.0)


def test_a_language_that_nobody_knows_cannot_be_told() -> None:
    assert detected_language("pes", among=("hsb", "en")) == ("hsb", 0.0)
