"""Standard streams: results to stdout, everything else to stderr, failures to exit codes.

Knows errors and streams, none of the commands.
"""

import contextlib
import errno
import functools
import json
import logging
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Never, ParamSpec, TextIO

from tqdm import tqdm

from mt_cli.errors import MtCliError, ResourceError
from mt_cli.machine.audience import reaches_people
from mt_cli.machine.shortage import HINTS, shortage
from mt_cli.machine.signals import Terminated
from mt_cli.machine.visible import VisibleFormatter, spelled, visible_lines

P = ParamSpec("P")

BUG = "this is a bug in mt-cli; the lines above say where"
NARROWEST = 40
"""Columns below which no view becomes narrower."""
LONGEST_MESSAGE = 10_000
"""Characters."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def exit_codes(command: Callable[P, None]) -> Callable[P, None]:
    """The one error boundary: every failure of `command` becomes a message and an exit code."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:
            _drop_stdout()
            raise SystemExit(128 + signal.SIGPIPE) from None
        except KeyboardInterrupt:
            fail("interrupted", 128 + signal.SIGINT)
        except Terminated:
            fail("stopped", 128 + signal.SIGTERM)
        except MtCliError as error:
            fail(f"error: {error.with_flags()}", error.exit_code)
        except Exception as error:
            _fail_with(error)

    return guarded


def _fail_with(error: Exception) -> Never:
    """End the process with the message and the exit code of an unexpected `error`."""
    lacking = shortage(error)
    if lacking is not None:
        fail(f"error: {lacking}; {HINTS[lacking]}", ResourceError.exit_code)
    if isinstance(error, OSError):
        place = "" if error.filename is None else f" ({error.filename})"
        fail(f"error: {_reason(error)}{place}", ResourceError.exit_code)
    print_aside("".join(traceback.format_exception(error)).rstrip())
    fail(f"error: {BUG}", 1)


def _reason(error: OSError) -> str:
    return "no space left on the disk" if error.errno in NO_SPACE else error.strerror or str(error)


def set_up_logging(*, is_quiet: bool, is_verbose: bool) -> None:
    """Send the package's log to stderr: warnings, progress unless quiet, details if verbose."""
    logging.raiseExceptions = False  # a log that cannot be written must not hide what is logged
    handler = _StderrHandler()
    handler.setLevel(logging.WARNING if is_quiet else logging.DEBUG if is_verbose else logging.INFO)
    handler.setFormatter(_LevelFormatter())
    handler.addFilter(reaches_people)
    package = logging.getLogger("mt_cli")
    package.handlers = [handler]
    package.setLevel(logging.DEBUG)
    package.propagate = False


def print_lines(text: str) -> None:
    """Write `text`, made fit to be shown, and a line end to stdout, as UTF-8, and make sure it got there."""
    write_bytes(f"{visible_lines(text)}\n".encode())


def print_path(path: Path) -> None:
    """Write `path` to stdout: to a script as it is, byte by byte, and to a terminal fit to be shown."""
    _print_exactly(os.fsencode(path), shown=str(path))


def _print_exactly(data: bytes, *, shown: str) -> None:
    if is_terminal(sys.stdout):
        print_lines(shown)
    else:
        write_bytes(data + b"\n")


def print_json(value: object) -> None:
    """Write one JSON document to stdout."""
    print_lines(json_text(value, indent=2))


def json_text(value: object, *, indent: int | None = None) -> str:
    r"""`value` as JSON that every reader takes, and that may be shown: letters stay, the rest is escaped.

    A number that is not finite becomes null. A lone surrogate, which no UTF-8 can hold, is spelled out.
    """
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else _escaped(letter) for letter in text)


def _finite(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value


def _escaped(letter: str) -> str:
    r"""Such as `\u202e`, which JSON reads back."""
    is_surrogate = "\ud800" <= letter <= "\udfff"
    return f"\\{spelled(letter)}" if is_surrogate else json.dumps(letter)[1:-1]


def print_result(result: str | Path | bytes, document: object, *, as_json: bool) -> None:
    """Write what a command found to stdout: `result`, or the JSON `document` in its place.

    A path, and bytes, which are UTF-8 for a program to read, reach a script as they are.
    """
    if as_json:
        print_json(document)
    elif isinstance(result, Path):
        print_path(result)
    elif isinstance(result, bytes):
        _print_exactly(result, shown=result.decode())
    else:
        print_lines(result)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads `stream`."""
    return stream is not None and stream.isatty()


def width_of(stream: TextIO | None) -> int | None:
    """Columns of the terminal that `stream` is; None if it is none, where lines may be of any length."""
    if stream is None or not stream.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    columns = int(told) if told.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    return max(NARROWEST, columns) if columns else 80  # 0 where nobody has told the terminal


def print_aside(text: str) -> None:
    """Write `text`, which was asked for but is not the result, to stderr, made fit to be shown."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(f"{visible_lines(text)}\n")
            sys.stderr.flush()


def for_stderr(text: str) -> str:
    """`text` with a ? in place of each letter that stderr cannot show, so that columns stay in line."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    return text.encode(encoding, "replace").decode(encoding)


def write_bytes(data: bytes) -> None:
    """Write `data` to stdout at once.

    Raises:
        ResourceError: it is closed, or its disk is full.
    """
    if sys.stdout is None:
        raise ResourceError("standard output is closed; nothing could be written")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_stdout()
        raise ResourceError(f"{_reason(error)} (standard output)") from error


class _StderrHandler(logging.Handler):
    """Writes above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        # Nobody may be reading any more, which must not end the work.
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not None:
                tqdm.write(self.format(record), file=sys.stderr)


class _LevelFormatter(VisibleFormatter):
    def format(self, record: logging.LogRecord) -> str:
        message = super().format(record)
        return f"{record.levelname.lower()}: {message}" if record.levelno >= logging.WARNING else message


def fail(message: str, code: int) -> Never:
    """End the process with `code` and `message`, at no great length, on stderr."""
    print_aside(message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…")
    raise SystemExit(code) from None


def _drop_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit does not fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
