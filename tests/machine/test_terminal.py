"""What is shown: progress to who listens, and nothing that a terminal obeys or hides."""

import io
import logging
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from mt_cli.machine import terminal
from mt_cli.machine.terminal import progress_shown, set_up_logging, visible


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that its one number sets; afterwards the log is as it was."""
    now = [0.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    package = logging.getLogger("mt_cli")
    before = package.handlers, package.propagate, package.level
    yield now
    package.handlers, package.propagate = before[:2]
    package.setLevel(before[2])


def advance(clock: list[float], *, total: int | None) -> None:
    """Five updates of 25, five seconds apart."""
    with progress_shown("translating test", unit="lines", total=total) as update:
        for _ in range(5):
            clock[0] += 5
            update(25)


@pytest.mark.parametrize(
    ("total", "expected"), [(200, ["50 of 200", "100 of 200"]), (None, ["50", "100"])]
)
def test_a_line_every_ten_seconds_where_stderr_is_no_terminal(
    clock: list[float], capsys: pytest.CaptureFixture[str], total: int | None, expected: list[str]
) -> None:
    set_up_logging(is_quiet=False, is_verbose=False)
    advance(clock, total=total)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.findall(r"^translating test  (.*) lines", err, re.MULTILINE) == expected
    assert err.count("\n") == len(expected)
    set_up_logging(is_quiet=True, is_verbose=False)
    advance(clock, total=total)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_that_goes_and_no_lines(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    set_up_logging(is_quiet=False, is_verbose=False)
    advance(clock, total=200)
    shown = stderr.getvalue()
    assert "translating test:" in shown
    assert "\n" not in shown
    assert shown.endswith("\r")
    assert shown.rpartition("\r")[0].rpartition("\r")[2].strip() == "", "it was not wiped"


@pytest.mark.parametrize(
    ("text", "kept", "shown"),
    [
        ("\x1b[31mrot\x07", "", "\\x1b[31mrot\\x07"),
        ("a\u200bb\u202ec\ufeff", "", "a\\u200bb\\u202ec\\ufeff"),
        ("\u2066\u2069\U000e0001", "", "\\u2066\\u2069\\U000e0001"),
        ("bad\udcff", "", "bad\\udcff"),
        ("Grüße, 犬 🐶 – „ja“", "", "Grüße, 犬 🐶 – „ja“"),
        ("a\tb\nc\r\x1b[2J", "\n\t", "a\tb\nc\\r\\x1b[2J"),
    ],
)
def test_controls_and_invisible_characters_are_spelled_out(
    text: str, kept: str, shown: str
) -> None:
    assert visible(text, kept=kept) == shown
