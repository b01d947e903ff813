r"""Terminals and streams: text that may be shown, results on stdout, logs and progress on stderr.

What a terminal would obey, or hide, is spelled out, such as `\x1b` or `\u202e`: names of files,
keys of configs and entries of vocabularies were written by somebody else.
"""

import contextlib
import json
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from mt_cli.errors import ResourceError
from mt_cli.machine.files import reason_of, write_errors_named

log = logging.getLogger(__name__)

NARROWEST, WIDEST_TABLE = 40, 80
"""Columns: below the first no view becomes narrower, and no table is wider than the second."""
LINE_EVERY_S = 10.0
"""Seconds between two lines of progress where there is no bar."""

# Text that may be shown


def visible(text: str, *, kept: str = "") -> str:
    r"""`text` with each control or invisible character but those of `kept` spelled out, such as
    `\u200b`.

    So is a lone surrogate, as which Python keeps a byte of a path that is not UTF-8.
    """
    return "".join(
        letter
        if letter.isprintable() or letter in kept
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )


def json_text(value: object, *, indent: int | None = None) -> str:
    """`value`, of dataclasses and paths too, as JSON that every reader takes, and that may be
    shown.

    What is not finite becomes null.
    """
    plain = _plain(value)
    text = json.dumps(plain, ensure_ascii=False, indent=indent)
    return text if text.replace("\n", "").isprintable() else json.dumps(plain, indent=indent)


def _plain(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Path():
            return str(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return _plain(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else value


def table_text(head: Sequence[object], rows: Sequence[Sequence[object]], *, lefts: int = 1) -> str:
    """A table as plain text; the first `lefts` columns begin at the left, the others end at the
    right.
    """
    from io import StringIO

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, name in enumerate(head):
        table.add_column(
            str(name),
            justify="left" if number < lefts else "right",
            no_wrap=number >= lefts,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(visible(str(cell)) for cell in row))
    console = Console(
        file=StringIO(), width=WIDEST_TABLE, color_system=None, legacy_windows=False, markup=False
    )
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


# stdout: results


def print_result(result: str | Path | bytes, document: object, *, as_json: bool) -> None:
    """Write what a command found to stdout: `result`, or the JSON `document` in its place.

    A path, and bytes, which are UTF-8 for a program to read, reach a script as they are.
    """
    if as_json:
        print_lines(json_text(document, indent=2))
        return
    raw = os.fsencode(result) if isinstance(result, Path) else result
    if isinstance(raw, bytes) and not is_terminal(sys.stdout):
        write_bytes(raw + b"\n")
    else:
        print_lines(result.decode() if isinstance(result, bytes) else str(result))


def print_lines(text: str) -> None:
    """Write `text`, made fit to be shown, and a line end to stdout, as UTF-8, and make sure it got
    there.
    """
    write_bytes((visible(text, kept="\n\t") + "\n").encode())


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
        drop_stdout()
        raise ResourceError(f"{reason_of(error)} (standard output)") from error


def drop_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit does not fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads `stream`."""
    return stream is not None and stream.isatty()


def width_of(stream: TextIO | None) -> int | None:
    """Columns of the terminal that `stream` is; None if it is none, where lines may be of any
    length.
    """
    if not is_terminal(stream):
        return None
    return max(NARROWEST, shutil.get_terminal_size((WIDEST_TABLE, 0)).columns)


# stderr: everything else


def print_aside(text: str) -> None:
    """Write `text`, made fit to be shown, to stderr, above a progress bar if there is one."""
    # Nobody may be reading any more, which must not end the work.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            tqdm.write(visible(text, kept="\n\t"), file=sys.stderr)


def set_up_logging(*, is_quiet: bool, is_verbose: bool) -> None:
    """Send the package's log to stderr: warnings, progress unless quiet, details if verbose."""
    logging.raiseExceptions = False  # a log that cannot be written must not hide what is logged
    handler = _StderrHandler()
    handler.setLevel(logging.WARNING if is_quiet else logging.DEBUG if is_verbose else logging.INFO)
    package = logging.getLogger("mt_cli")
    package.handlers = [handler]
    package.setLevel(logging.DEBUG)
    package.propagate = False


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        print_aside(f"{level}{self.format(record)}")


class _LogFile(logging.FileHandler):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), kept="\n\t")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 — logging's name
        """Give up, with a warning: a log is never what work is for."""
        error = sys.exception()
        logging.getLogger("mt_cli").removeHandler(self)
        reason = reason_of(error) if isinstance(error, OSError) else error
        log.warning("%s: cannot be written: %s; the work goes on", self.baseFilename, reason)


@contextlib.contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Add all that the package logs in the block to the end of the file `path`, details too.

    Raises:
        ResourceError: it cannot be opened.
    """
    with write_errors_named(path):
        handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    package = logging.getLogger("mt_cli")
    previous = package.level
    package.setLevel(logging.DEBUG)
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(previous)
        with contextlib.suppress(OSError):
            handler.close()


@contextlib.contextmanager
def progress_shown(
    label: str, *, unit: str, total: int | None = None, is_hidden: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show how far the work `label`, such as `translating test`, has come; call what is yielded
    with a count.

    Where stderr is a terminal it is a bar that vanishes when done, else a line of the log after
    each `LINE_EVERY_S`; neither is seen if nobody `is_listened_to`. `unit` is what is counted, such
    as `lines`.
    """
    done, started_at = 0, time.monotonic()
    told_at = started_at

    def update(count: int) -> None:
        nonlocal done, told_at
        done += count
        bar.update(count)
        now = time.monotonic()
        if bar.disable and not is_hidden and now - told_at >= LINE_EVERY_S:
            told_at = now
            share = f"{done} {unit}"
            if total:
                share = f"{done} of {total} {unit}  {100 * done // total} %"
            log.info("%s  %s  elapsed %.0f s", label, share, now - started_at)

    is_shown = sys.stderr is not None and is_listened_to() and not is_hidden
    with tqdm(
        desc=visible(label),
        unit=f" {unit}",
        total=total,
        disable=None if is_shown else True,  # None: only if stderr is no terminal
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
    ) as bar:
        yield update


def is_listened_to(level: int = logging.INFO) -> bool:
    """Whether messages of `level` reach more than a file: INFO does not with `--quiet`, nor in a
    library.
    """
    handlers = logging.getLogger("mt_cli").handlers
    return any(h.level <= level and not isinstance(h, logging.FileHandler) for h in handlers)


def in_words(seconds: float) -> str:
    """A duration such as `74 s`, `2.4 min`, `35 min` or `2.6 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.{int(seconds < 600)}f} min"
    return f"{seconds / 3600:.1f} h"
