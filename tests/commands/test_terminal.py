"""The error boundary and the standard streams."""

import errno
import subprocess
import sys

import pytest
from workspace import Workspace

from mt_cli.errors import (
    CheckFailedError,
    ConfigError,
    DataError,
    DivergedError,
    MtCliError,
    ResourceError,
    StoppedError,
    UsageError,
)
from mt_cli.translation.translator import Translator

SHOW = ["config", "show", "sample"]


def shell(redirection: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that prints much at once, its streams redirected as the shell does it."""
    return subprocess.run(
        ["bash", "-c", f'"$0" -m mt_cli "$@" {redirection}', sys.executable, *SHOW],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (ConfigError("x"), 2),
        (DataError("x"), 3),
        (DivergedError("x"), 4),
        (ResourceError("x"), 5),
        (CheckFailedError("x"), 6),
        (StoppedError("x", signal_number=15), 143),
        (StoppedError("x", signal_number=2), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MtCliError) else str(value),
)
def test_own_error_is_one_message_and_its_code(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, error: MtCliError, code: int
) -> None:
    fail_with(monkeypatch, error)
    outcome = workspace.call("translate", "runs/tiny", stdin=b"Ein Hund.\n")
    told = "x\n" if isinstance(error, StoppedError) else "error: x\n"  # to be stopped is no error
    assert (outcome.code, outcome.out, outcome.err) == (code, b"", told)


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Translator, "translate", fail)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (MemoryError(), 5, "error: out of memory"),
        (
            OSError(errno.ENOSPC, "full", "some/file"),
            5,
            "error: no space left on the disk (some/file)",
        ),
        (OSError(errno.EIO, "broken"), 5, "error: broken"),
    ],
    ids=["interrupt", "memory", "disk", "nameless"],
)
def test_failure_that_is_no_bug_shows_no_traceback(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    said: str,
) -> None:
    fail_with(monkeypatch, error)
    outcome = workspace.call("translate", "runs/tiny", stdin=b"Ein Hund.\n")
    assert (outcome.code, outcome.out) == (code, b"")
    assert said in outcome.err
    assert "Traceback" not in outcome.err


def test_bug_shows_its_traceback_and_exits_1(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(monkeypatch, ZeroDivisionError())
    outcome = workspace.call("translate", "runs/tiny", stdin=b"Ein Hund.\n")
    assert (outcome.code, outcome.out) == (1, b"")
    assert "Traceback (most recent call last):\n" in outcome.err
    assert "bug in mt-cli" in outcome.err


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">/dev/full", 5, "error: no space left on the disk (standard output)\n"),
        (">&-", 5, "error: standard output is closed; nothing could be written\n"),
        ("2>&-", 0, ""),
        ("| true; exit ${PIPESTATUS[0]}", 141, ""),
    ],
    ids=["full disk", "closed stdout", "closed stderr", "reader that leaves"],
)
def test_stream_that_cannot_be_written_is_told_by_the_exit_code(
    redirection: str, code: int, said: str
) -> None:
    done = shell(redirection)
    assert (done.returncode, done.stderr) == (code, said)
    assert bool(done.stdout) == (code == 0)
