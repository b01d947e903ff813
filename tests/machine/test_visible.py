"""Text that may be shown: nothing that a terminal obeys or hides is left in it."""

import logging

import pytest

from mt_cli.machine.terminal import VisibleFormatter, visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mrot\x07", "\\x1b[31mrot\\x07"),
        ("a\u200bb\u202ec\ufeff", "a\\u200bb\\u202ec\\ufeff"),
        ("a\tb\nc\x85\x9b", "a\\x09b\\x0ac\\x85\\x9b"),
        ("\u2066\u2069\U000e0001", "\\u2066\\u2069\\U000e0001"),
        ("bad\udcff", "bad\\udcff"),
        ("Grüße, 犬 🐶 – „ja“", "Grüße, 犬 🐶 – „ja“"),
    ],
)
def test_controls_and_invisible_characters_are_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_and_columns_stay_in_text_of_several_lines() -> None:
    assert visible_lines("a\tb\nc\r\x1b[2J") == "a\tb\nc\\x0d\\x1b[2J"


def test_log_record_is_cleaned_with_its_arguments_and_its_traceback() -> None:
    info = (ValueError, ValueError("\x1b[2J"), None)
    record = logging.LogRecord("x", logging.INFO, "f", 1, "%s", ("\x1b]0;title\x07",), info)
    shown = VisibleFormatter().format(record)
    assert "\x1b" not in shown
    assert shown.startswith("\\x1b]0;title\\x07\n")
    assert shown.endswith("ValueError: \\x1b[2J")
