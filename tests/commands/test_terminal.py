"""The error boundary and the standard streams, in processes that have real ones."""

import json
import os
import shlex
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


def test_error_without_end_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    @exit_codes
    def command() -> None:
        raise DataError("x" * 10**6)

    with pytest.raises(SystemExit):
        command()
    said = capsys.readouterr().err
    assert said.endswith("x…\n")
    assert len(said) < 11_000


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "interrupted\n"),
        (
            "raise MemoryError",
            5,
            "error: out of memory; use a smaller batch or model, or raise the limit (ulimit -v)\n",
        ),
        (
            "raise RuntimeError('can\\'t start new thread')",
            5,
            "error: the system lets this process start no more threads; use fewer (OMP_NUM_THREADS=1), or "
            "raise the limit (ulimit -u, ulimit -v)\n",
        ),
        ("raise OSError(errno.EIO, 'broken')", 5, "error: broken\n"),
        (
            "raise OSError(errno.ENOSPC, 'full', 'some/file')",
            5,
            "error: no space left on the disk (some/file)\n",
        ),
        ("open('/no/such/file')", 5, "error: No such file or directory (/no/such/file)\n"),
    ],
    ids=["interrupt", "SIGINT", "memory", "threads", "nameless", "disk", "file"],
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


@pytest.mark.processes
def test_help_that_nobody_reads_ends_with_141() -> None:
    command = f"{shlex.quote(sys.executable)} -m mt_cli --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, "")


def test_log_that_nobody_reads_any_more_does_not_end_the_work() -> None:
    body = "set_up_logging(is_quiet=False, is_verbose=False); log = logging.getLogger('mt_cli.x'); "
    body += "[log.info('x' * 999) for _ in range(999)]; print_lines('done')"
    done = run(body, redirection="2> >(head -n 1 >/dev/null)")
    assert (done.returncode, done.stdout) == (0, "done\n")


# Text that somebody else has written

HOSTILE = r"\x1b]0;owned\x07 \x9b2J \u202e \udcff"
"""As source code: commands of a terminal, a change of direction, a byte that is no UTF-8."""
HARMLESS = r"\x1b]0;owned\x07 \x9b2J \u202e \udcff"


@pytest.mark.parametrize(
    "body",
    [
        f"print_lines('{HOSTILE}')",
        f"print_result('{HOSTILE}', None, as_json=False)",
        f"print_aside('{HOSTILE}')",
        f"raise DataError('{HOSTILE}')",
        f"raise RuntimeError('{HOSTILE}')",
        f"raise OSError(errno.EIO, 'broken', '{HOSTILE}')",
        f"set_up_logging(is_quiet=True, is_verbose=False); logging.getLogger('mt_cli').error('{HOSTILE}')",
    ],
    ids=["lines", "result", "aside", "error", "bug", "file", "log"],
)
@pytest.mark.parametrize("env", [{}, ASCII], ids=["utf-8", "ascii"])
def test_nothing_that_a_terminal_obeys_reaches_it(body: str, env: Mapping[str, str]) -> None:
    done = run(body, env=env)
    said = done.stdout + done.stderr
    assert HARMLESS in said
    assert all(letter.isprintable() for letter in said.replace("\n", ""))
    assert "Logging error" not in said
    assert done.returncode != 0 or body.startswith(("print", "set"))


def test_json_is_valid_and_shows_no_control_but_reads_back_the_same() -> None:
    text = r"\x1b \x7f \x9b \u202e \U000e0001 \u00e4"
    done = run(f"print_json({{'{text}': ['{text}', float('nan'), float('-inf'), 1.5]}})")
    meant = text.encode().decode("unicode_escape")
    assert json.loads(done.stdout, parse_constant=pytest.fail) == {meant: [meant, None, None, 1.5]}
    assert done.stdout.replace("\n", "").isprintable()
    assert "ä" in done.stdout


def test_json_spells_out_bytes_of_a_path_that_are_no_utf8() -> None:
    done = run(r"print_json({'path': os.fsdecode(b'bad\xff')})")
    assert json.loads(done.stdout) == {"path": "bad\\udcff"}


def test_script_gets_a_path_byte_by_byte() -> None:
    body = r"from pathlib import Path; print_result(Path(os.fsdecode(b'bad\xff')), None, as_json=False)"
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(body=body)], capture_output=True, check=True)
    assert done.stdout == b"bad\xff\n"


# The first error is the one that is told


def test_full_disk_of_another_file_is_not_said_of_stdout() -> None:
    done = run("file = open('/dev/full', 'w'); file.write('x'); file.flush()")
    assert done.returncode == 5
    assert done.stderr.startswith("error: no space left on the disk\n")


def test_log_that_cannot_be_written_shows_no_traceback() -> None:
    body = "set_up_logging(is_quiet=False, is_verbose=False); "
    body += "logging.getLogger('mt_cli').addHandler(logging.FileHandler('/dev/full')); "
    body += "logging.getLogger('mt_cli').info('x'); print_lines('done')"
    done = run(body)
    assert done.stdout == "done\n"
    assert "Traceback" not in done.stderr


def test_sigterm_is_said_and_clears_away_what_is_half_done() -> None:
    body = "from mt_cli.machine.signals import termination_raised; t = termination_raised(); t.__enter__()"
    body += "\n    try: os.kill(os.getpid(), signal.SIGTERM)"
    body += "\n    finally: print_aside('cleared away')"
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "cleared away\nstopped\n")
