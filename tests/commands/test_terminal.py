"""The error boundary and the standard streams, in processes that have real ones."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from mt_cli.commands.terminal import exit_codes
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

PROGRAM = """
import errno, logging, os, signal, sys
from mt_cli.errors import *
from mt_cli.commands.terminal import *

@exit_codes
def command():
    {body}

command()
"""


# Python would make UTF-8 of this locale by itself.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(
    body: str, *, redirection: str = "", env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command of `body`, its streams redirected as the shell does it."""
    return subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {redirection}', sys.executable, PROGRAM.format(body=body)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **(env or {})},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such thing"), 2),
        (ConfigError("no such thing"), 2),
        (DataError("no such thing"), 3),
        (DivergedError("no such thing"), 4),
        (ResourceError("no such thing"), 5),
        (CheckFailedError("no such thing"), 6),
        (StoppedError("no such thing", signal_number=15), 143),
        (StoppedError("no such thing", signal_number=2), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MtCliError) else str(value),
)
def test_own_error_is_one_message_and_its_code(
    error: MtCliError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    @exit_codes
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        command()
    assert end.value.code == code
    assert capsys.readouterr() == ("", "error: no such thing\n")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "interrupted\n"),
        ("raise MemoryError", 5, "error: out of memory; use a smaller batch or model\n"),
        (
            "raise OSError(errno.ENOSPC, 'full', 'some/file')",
            5,
            "error: no space left on the disk (some/file)\n",
        ),
        ("open('/no/such/file')", 5, "error: No such file or directory (/no/such/file)\n"),
    ],
    ids=["interrupt", "SIGINT", "memory", "disk", "file"],
)
def test_failure_that_is_no_bug_shows_no_traceback(body: str, code: int, message: str) -> None:
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_bug_shows_its_traceback_and_exits_1() -> None:
    done = run("1 / 0")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("error: this is a bug in mt-cli; the lines above say where\n")
    assert done.stdout == ""


def test_success_exits_0_with_the_result_alone_on_stdout() -> None:
    done = run(
        "set_up_logging(is_quiet=False, is_verbose=False); "
        "logging.getLogger('mt_cli.x').info('working'); print_lines('done')"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "working\n")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("is_quiet=True, is_verbose=False", "warning: w\nerror: e\n"),
        ("is_quiet=False, is_verbose=False", "i\nwarning: w\nerror: e\n"),
        ("is_quiet=False, is_verbose=True", "d\ni\nwarning: w\nerror: e\n"),
    ],
    ids=["quiet", "plain", "verbose"],
)
def test_flags_choose_what_is_logged(flags: str, expected: str) -> None:
    calls = "; ".join(f"log.{level}('{level[0]}')" for level in ("debug", "info", "warning", "error"))
    done = run(f"set_up_logging({flags}); log = logging.getLogger('mt_cli.x'); {calls}")
    assert (done.stdout, done.stderr) == ("", expected)


def test_output_is_utf8_whatever_the_locale() -> None:
    done = run(r"print_lines('schl\xe4ft'), print(sys.stdout.encoding, file=sys.stderr)", env=ASCII)
    assert (done.stdout, done.stderr.strip()) == ("schläft\n", "ascii")


def test_json_keeps_letters_readable() -> None:
    done = run("print_json({'a': 'ä', 'b': [1, None]})")
    assert '"ä"' in done.stdout
    assert json.loads(done.stdout) == {"a": "ä", "b": [1, None]}


@pytest.mark.parametrize("body", ["print_lines('x')", "[print_lines('x' * 999) for _ in range(999)]"])
def test_full_disk_at_stdout_is_said_and_exits_5(body: str) -> None:
    done = run(body, redirection=">/dev/full")
    assert done.returncode == 5
    assert done.stderr == "error: no space left on the disk (standard output)\n"


def test_closed_stdout_is_said_and_exits_5() -> None:
    done = run("print_lines('x')", redirection=">&-")
    assert done.returncode == 5
    assert done.stderr == "error: standard output is closed; nothing could be written\n"


def test_closed_stderr_changes_no_result() -> None:
    body = "set_up_logging(is_quiet=False, is_verbose=False); logging.getLogger('mt_cli').info('x')"
    done = run(f"{body}; print_lines('done')", redirection="2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_error_with_closed_stderr_keeps_its_code() -> None:
    assert run("raise DataError('x')", redirection="2>&-").returncode == 3


def test_reader_that_leaves_ends_the_command_with_141_and_no_word() -> None:
    body = "[print_lines('x' * 999) for _ in range(999)]"
    done = run(body, redirection="> >(head -n 1 >/dev/null)")
    assert (done.returncode, done.stderr) == (141, "")


def test_log_that_nobody_reads_any_more_does_not_end_the_work() -> None:
    body = "set_up_logging(is_quiet=False, is_verbose=False); log = logging.getLogger('mt_cli.x'); "
    body += "[log.info('x' * 999) for _ in range(999)]; print_lines('done')"
    done = run(body, redirection="2> >(head -n 1 >/dev/null)")
    assert (done.returncode, done.stdout) == (0, "done\n")
