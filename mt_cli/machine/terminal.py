"""The terminal: printing, logging and progress."""

import contextlib
import io
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Never, TextIO

from pydantic import BaseModel
from tqdm import tqdm

from mt_cli.errors import ResourceError
from mt_cli.machine.failures import reason_of

log = logging.getLogger(__name__)

MAX_TABLE_WIDTH = 80
"""Columns of the narrowest terminal that people use."""

# Text safe to show


def visible(text: str, *, kept: str = "") -> str:
    r"""`text` with control and invisible characters spelled out, such as `\u200b`.

    Those in `kept` stay. Lone surrogates are spelled out, too: Python uses them for bytes of a path
    that are not UTF-8.
    """
    return "".join(
        letter
        if letter.isprintable() or letter in kept
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )


def json_text(value: object, *, indent: int | None = None) -> str:
    """`value` as strict JSON that is safe to show on a terminal.

    It may contain dataclasses and paths. NaN and infinity become null.
    """
    # Constants are NaN and infinity, of which JSON knows nothing.
    plain = json.loads(json.dumps(value, default=_fields), parse_constant=lambda _: None)
    text = json.dumps(plain, ensure_ascii=False, indent=indent)
    return text if text.replace("\n", "").isprintable() else json.dumps(plain, indent=indent)


def _fields(value: Any) -> object:  # noqa: ANN401
    if isinstance(value, Path):
        return str(value)
    return value.model_dump() if isinstance(value, BaseModel) else asdict(value)


def table_text(head: Sequence[object], rows: Sequence[Sequence[object]], *, lefts: int = 1) -> str:
    """A table as plain text; the first `lefts` columns are left-aligned, the others right."""
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
        file=io.StringIO(),
        width=MAX_TABLE_WIDTH,
        color_system=None,
        legacy_windows=False,
        markup=False,
    )
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


# stdout: results


def print_result(result: str | Path | bytes, document: object, *, as_json: bool) -> None:
    """Write a command's result to stdout: `result`, or with `as_json` the JSON `document`.

    Paths and bytes (UTF-8, for programs) are written unchanged if stdout is not a terminal.
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
    """Write `text`, made safe for a terminal, and a line end to stdout as UTF-8, and flush."""
    write_bytes((visible(text, kept="\n\t") + "\n").encode())


def write_bytes(data: bytes) -> None:
    """Write `data` to stdout, and flush.

    Raises:
        ResourceError: stdout is closed.
    """
    if sys.stdout is None:
        raise ResourceError("standard output is closed; cannot write the results")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        silence_stdout()
        error.filename = "standard output"
        raise


def silence_stdout() -> None:
    """Redirect stdout to nowhere, so that Python's flush at exit does not fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_terminal(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal."""
    return stream is not None and stream.isatty()


# stderr: everything else


def print_stderr(text: str, *, end: str = "\n") -> None:
    """Write `text`, made safe for a terminal, to stderr, above the progress bar if there is one."""
    # A closed stderr must not stop the work.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            tqdm.write(visible(text, kept="\n\t"), file=sys.stderr, end=end)
            sys.stderr.flush()


def set_up_logging(*, is_quiet: bool, is_verbose: bool) -> None:
    """Send the package's log to stderr: warnings, progress unless quiet, details if verbose."""
    logging.raiseExceptions = False  # no tracebacks about a log that cannot be written
    handler = _StderrHandler()
    handler.setLevel(logging.WARNING if is_quiet else logging.DEBUG if is_verbose else logging.INFO)
    package = logging.getLogger("mt_cli")
    package.handlers = [handler]
    package.setLevel(logging.DEBUG)
    package.propagate = False


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        print_stderr(f"{level}{self.format(record)}")


class _LogFile(logging.FileHandler):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), kept="\n\t")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 — logging's name
        """Stop logging to the file, with a warning; the work continues."""
        error = sys.exception()
        logging.getLogger("mt_cli").removeHandler(self)
        reason = reason_of(error) if isinstance(error, OSError) else error
        log.warning("%s: cannot write the log: %s; continuing", self.baseFilename, reason)


@contextlib.contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Append everything that the package logs in the block, including details, to `path`."""
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


def shows_info() -> bool:
    """Whether messages of level INFO reach a person, and not only a file.

    They do not with `--quiet`, when `mt_cli` is used as a library, or when another process
    reports.
    """
    package = logging.getLogger("mt_cli")
    if not package.isEnabledFor(logging.INFO):
        return False
    for handler in package.handlers:
        if handler.level <= logging.INFO and not isinstance(handler, logging.FileHandler):
            return True
    return False


BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {elapsed}<{remaining}{postfix}"
"""In 80 columns, the facts about training leave a third of the width for the bar."""
LINE_EVERY_S = 10.0
"""Seconds between two lines of progress when there is no bar."""


def progress_bar(
    label: str, *, unit: str, total: int | None = None, initial: int = 0, is_hidden: bool = False
) -> "tqdm[Never]":
    """A progress bar on stderr that disappears when closed; disabled if nobody can see it."""
    can_be_seen = sys.stderr is not None and shows_info() and not is_hidden
    return tqdm(
        desc=visible(label),
        unit=f" {unit}",
        total=total,
        initial=initial,
        disable=None if can_be_seen else True,  # None: disabled if stderr is not a terminal
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
        bar_format=BAR if total else None,
    )


@contextmanager
def progress_shown(
    label: str, *, unit: str, total: int | None = None, is_hidden: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show the progress of the work `label`, such as `translating test`, during the block.

    Call the yielded function with the number of finished units, such as `lines`. If stderr is not a
    terminal, the log gets a line every `LINE_EVERY_S` seconds.
    """
    started_at = time.monotonic()
    last_line_at = started_at
    done = 0

    def update(count: int) -> None:
        nonlocal done, last_line_at
        done += count
        bar.update(count)
        now = time.monotonic()
        if bar.disable and not is_hidden and now - last_line_at >= LINE_EVERY_S:
            last_line_at = now
            share = f"{done} {unit}"
            if total:
                share = f"{done} of {total} {unit}  {100 * done // total} %"
            log.info("%s  %s  elapsed %.0f s", label, share, now - started_at)

    with progress_bar(label, unit=unit, total=total, is_hidden=is_hidden) as bar:
        yield update
