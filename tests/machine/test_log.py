"""Progress: lines where nobody watches a bar, and none where nobody listens."""

import io
import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from mt_cli.machine import terminal as progress
from mt_cli.machine.terminal import progress_shown, set_up_logging


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that its one number sets; afterwards the log is as it was."""
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    package = logging.getLogger("mt_cli")
    before = package.handlers, package.propagate, package.level
    yield now
    package.handlers, package.propagate = before[:2]
    package.setLevel(before[2])


def advance(clock: list[float], *, total: int | None, is_hidden: bool = False) -> None:
    """Five updates of 25, five seconds apart."""
    with progress_shown(
        "translating test", unit="lines", total=total, is_hidden=is_hidden
    ) as update:
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
    for line, numbers in zip(err.splitlines(), expected, strict=True):
        assert line.startswith(f"translating test  {numbers} lines")


@pytest.mark.parametrize(
    ("is_quiet", "is_hidden"), [(True, False), (False, True)], ids=["quiet", "hidden"]
)
def test_nothing_is_shown_where_nothing_is_wanted(
    clock: list[float], capsys: pytest.CaptureFixture[str], is_quiet: bool, is_hidden: bool
) -> None:
    set_up_logging(is_quiet=is_quiet, is_verbose=False)
    advance(clock, total=200, is_hidden=is_hidden)
    assert capsys.readouterr() == ("", "")


def test_nothing_is_shown_where_another_process_reports(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(is_quiet=False, is_verbose=False)
    logging.getLogger("mt_cli").setLevel(logging.ERROR)  # as `train_run` does
    advance(clock, total=200)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_that_goes_and_no_lines(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    set_up_logging(is_quiet=False, is_verbose=False)
    advance(clock, total=200)
    shown = terminal.getvalue()
    assert "translating test:" in shown
    assert "\n" not in shown
    assert shown.endswith("\r")
    assert shown.rpartition("\r")[0].rpartition("\r")[2].strip() == "", "it was not wiped"
