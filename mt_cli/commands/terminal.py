"""Standard streams: results to stdout, everything else to stderr, failures to exit codes.

Knows errors and streams, none of the commands.
"""

import contextlib
import errno
import functools
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Never, ParamSpec, TextIO

from tqdm import tqdm

from mt_cli.errors import MtCliError, ResourceError
from mt_cli.machine.audience import reaches_people

P = ParamSpec("P")

BUG = "this is a bug in mt-cli; the lines above say where"
NARROWEST = 40
"""Columns below which no view becomes narrower."""
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
        except MtCliError as error:
            fail(f"error: {error.with_flags()}", error.exit_code)
        except MemoryError:
            fail("error: out of memory; use a smaller batch or model", ResourceError.exit_code)
        except OSError as error:
            _drop_stdout()
            full = error.errno in NO_SPACE
            reason = "no space left on the disk" if full else error.strerror or str(error)
            fail(f"error: {reason} ({error.filename or 'standard output'})", ResourceError.exit_code)
        except Exception:
            traceback.print_exc()
            fail(f"error: {BUG}", 1)

    return guarded


def set_up_logging(*, is_quiet: bool, is_verbose: bool) -> None:
    """Send the package's log to stderr: warnings, progress unless quiet, details if verbose."""
    handler = _StderrHandler()
    handler.setLevel(logging.WARNING if is_quiet else logging.DEBUG if is_verbose else logging.INFO)
    handler.setFormatter(_LevelFormatter())
    handler.addFilter(reaches_people)
    package = logging.getLogger("mt_cli")
    package.handlers = [handler]
    package.setLevel(logging.DEBUG)
    package.propagate = False


def print_lines(text: str) -> None:
    """Write `text` and a line end to stdout, as UTF-8 whatever the locale, and make sure it got there."""
    write_bytes(f"{text}\n".encode("utf-8", "surrogateescape"))


def print_json(value: object) -> None:
    """Write one JSON document to stdout."""
    print_lines(json.dumps(value, ensure_ascii=False, indent=2))


def print_result(text: str, document: object, *, as_json: bool) -> None:
    """Write what a command found to stdout: `text`, or the JSON `document` in its place."""
    if as_json:
        print_json(document)
    else:
        print_lines(text)


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
    """Write `text`, which was asked for but is not the result, to stderr."""
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def for_stderr(text: str) -> str:
    """`text` with a ? in place of each letter that stderr cannot show, so that columns stay in line."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    return text.encode(encoding, "replace").decode(encoding)


def write_bytes(data: bytes) -> None:
    """Write `data` to stdout at once."""
    if sys.stdout is None:
        raise ResourceError("standard output is closed; nothing could be written")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class _StderrHandler(logging.Handler):
    """Writes above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        # Nobody may be reading any more, which must not end the work.
        with contextlib.suppress(OSError):
            if sys.stderr is not None:
                tqdm.write(self.format(record), file=sys.stderr)


class _LevelFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = super().format(record)
        return f"{record.levelname.lower()}: {message}" if record.levelno >= logging.WARNING else message


def fail(message: str, code: int) -> Never:
    """End the process with `code` and `message` on stderr."""
    print_aside(message)
    raise SystemExit(code) from None


def _drop_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit does not fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
