r"""Streams of lines: what is translated, and where translations go.

Only `\n` ends a line, and an unterminated last line counts.
"""

import io
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.machine.files import replaced, write_errors_named
from mt_cli.text.normalize import decode_line, is_valid_utf8

log = logging.getLogger(__name__)

READ_BYTES = 1 << 18
FIRST_LINES = 128
"""Few, so that the first translations come soon; each later portion is twice as large."""
LINES_AT_ONCE = 2048
"""Enough that sorting by length fills batches evenly, few enough that memory stays small."""
MOST_BYTES = 1 << 30
"""Of a file that has to fit into memory."""
OPEN_FILE = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/(?:self|thread-self))/fd/(\d+)")
"""Names of what a shell has opened for this program, as in `-o /dev/stdout >> file`."""


def line_chunks(source: io.BufferedIOBase, *, side: str = "") -> Iterator[list[str]]:
    """The lines of `source` as they arrive: one by one when a person types, many at once from a file.

    `side` is what warnings of lines that are not UTF-8 call it, beside the line's number.
    """
    rest, most, number = b"", FIRST_LINES, 1
    while data := _read(source):
        *lines, rest = (rest + data).split(b"\n")
        # Never kept back for more to come: whoever writes may be waiting for the answer.
        while lines:
            yield [decoded(raw, number + i, side=side) for i, raw in enumerate(lines[:most])]
            number += len(lines[:most])
            lines, most = lines[most:], min(2 * most, LINES_AT_ONCE)
    if rest:
        yield [decoded(rest, number, side=side)]


def _read(source: io.BufferedIOBase) -> bytes:
    try:
        return source.read1(READ_BYTES)
    except OSError as error:
        raise DataError(f"the input cannot be read: {error.strerror}") from error


def decoded(raw: bytes, number: int, *, side: str = "") -> str:
    """The text of line `number` of a `side`, with a warning if it is not UTF-8."""
    if not is_valid_utf8(raw):
        place = f"{side} line {number}".lstrip()
        log.warning("%s: not valid UTF-8; what could not be read was left out", place)
    return decode_line(raw)


def decode_argument(text: str) -> str:
    """A line given on the command line, where Python has kept bytes that are no UTF-8 as surrogates."""
    return decoded(text.encode("utf-8", "surrogateescape"), 1)


@contextmanager
def open_source(name: str, *, text: str | None = None) -> Iterator[io.BufferedIOBase]:
    """The bytes to translate: `text` if given, else the file `name`, where `-` is stdin."""
    if text is not None:
        if name != "-":
            raise UsageError("give either --text or --input, not both")
        yield io.BytesIO(text.encode("utf-8", "surrogateescape") + b"\n")
    elif name == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed; name a file with --input, or use --text")
        with suppress(OSError):  # no real stream, as in a test
            os.set_blocking(sys.stdin.fileno(), True)  # or what has not come yet would be taken for the end
        yield cast("io.BufferedReader", sys.stdin.buffer)
    else:
        try:
            file = Path(name).open("rb")  # noqa: SIM115 — closed below
        except OSError as error:
            raise DataError(f"{name}: cannot be read: {error.strerror}") from error
        with file:
            yield file


def count_lines(source: io.BufferedIOBase) -> int | None:
    """Lines from where `source` stands; None if it is no file, so that nobody can know before its end."""
    try:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            return None
        begin = source.tell()
        num_lines, last = 0, b"\n"
        while data := source.read(READ_BYTES):
            num_lines, last = num_lines + data.count(b"\n"), data[-1:]
        source.seek(begin)
    except OSError:  # no real stream, or one that cannot be read: translating it will say so
        return None
    return num_lines + (last != b"\n")


@contextmanager
def open_target(name: str) -> Iterator[BinaryIO]:
    """Where translations go: stdout for `-`, else a file that appears under its name when complete."""
    if name == "-":
        if sys.stdout is None:
            raise ResourceError("standard output is closed; name a file with --output")
        yield sys.stdout.buffer
        return
    with write_errors_named(Path(name)), _opened(Path(name)) as file:
        yield file


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    if found := OPEN_FILE.fullmatch(str(path)):
        stream, number = found.groups()
        # A copy of the descriptor writes where the shell's own stands: behind what others have written.
        return os.fdopen(os.dup({"stdout": 1, "stderr": 2}[stream] if stream else int(number)), "wb")
    is_pipe = path.exists() and not path.is_file()  # or a device: neither must be replaced
    # Behind a link, the file is replaced and not the link.
    return path.open("wb") if is_pipe else replaced(path.resolve())


def read_bytes(path: Path) -> bytes:
    """The content of `path`, which may be a pipe: the user has named it.

    Raises:
        DataError: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise DataError(f"{path}: more than {MOST_BYTES:,} bytes; split it into smaller files")
    return content


def check_aligned(path: Path, lines: Sequence[str], to: str, to_lines: Sequence[str]) -> None:
    """Make sure that `lines`, of `path`, are as many as `to_lines`, those of what `to` names.

    Raises:
        DataError: they are not.
    """
    if len(lines) != len(to_lines):
        raise DataError(
            f"{path}: {len(lines)} lines, but {to} has {len(to_lines)}; the files must align line by line"
        )
