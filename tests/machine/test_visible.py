"""Text that may be shown: nothing that a terminal obeys or hides is left in it."""

import pytest

from mt_cli.machine.terminal import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mrot\x07", "\\x1b[31mrot\\x07"),
        ("a\u200bb\u202ec\ufeff", "a\\u200bb\\u202ec\\ufeff"),
        ("a\tb\nc\x85\x9b", "a\\tb\\nc\\x85\\x9b"),
        ("\u2066\u2069\U000e0001", "\\u2066\\u2069\\U000e0001"),
        ("bad\udcff", "bad\\udcff"),
        ("Grüße, 犬 🐶 – „ja“", "Grüße, 犬 🐶 – „ja“"),
    ],
)
def test_controls_and_invisible_characters_are_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_and_columns_stay_in_text_of_several_lines() -> None:
    assert visible("a\tb\nc\r\x1b[2J", kept="\n\t") == "a\tb\nc\\r\\x1b[2J"
