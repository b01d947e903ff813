"""The `translate` command: a stream of source lines in, one line out for each.

Owns how bytes become lines and back, and when to translate what has arrived; knows no model.
"""

import io
import logging
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from mt_cli.artefacts.files import replaced
from mt_cli.artefacts.write_errors import write_errors_explained
from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.text.normalize import decode_line, is_valid_utf8

log = logging.getLogger(__name__)

Translated = TypeVar("Translated")

READ_BYTES = 1 << 18
FIRST_LINES = 128
"""Few, so that the first translations come soon; each later portion is twice as large."""
LINES_AT_ONCE = 2048
"""Enough that sorting by length fills batches evenly, few enough that memory stays small."""
OPEN_FILE = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/(?:self|thread-self))/fd/(\d+)")
"""Names of what a shell has opened for this program, as in `-o /dev/stdout >> file`."""
STREAMS = {"stdout": 1, "stderr": 2}


def translate_lines(
    translate: Callable[[list[str]], list[Translated]],
    source: io.BufferedIOBase,
    write: Callable[[list[str], list[Translated]], None],
) -> int:
    r"""Translate the lines of `source`, hand (sources, translations) to `write` in order; gives their number.

    Lines are translated as soon as they have arrived: one by one when a person types, many at once from a
    file. Only `\n` ends a line, and an unterminated last line counts.
    """
    num_lines = 0
    for chunk in _chunks(source):
        lines = [decoded(raw, number) for number, raw in enumerate(chunk, start=num_lines + 1)]
        write(lines, translate(lines))
        num_lines += len(lines)
    return num_lines


def decode_argument(text: str) -> str:
    """A line given on the command line, where Python has kept bytes that are no UTF-8 as surrogates."""
    return decoded(text.encode("utf-8", "surrogateescape"), 1)


def decoded(raw: bytes, number: int, *, side: str = "") -> str:
    """The text of line `number` of a `side`, with a warning if it is not UTF-8."""
    if not is_valid_utf8(raw):
        place = f"{side} line {number}".lstrip()
        log.warning("%s: not valid UTF-8; what could not be read was left out", place)
    return decode_line(raw)


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
    given, path = Path(name), Path(name).resolve()  # behind a link, the file is replaced and not the link
    with write_errors_explained(given, given, path), _opened(given, path) as file:
        yield file


def _opened(given: Path, path: Path) -> AbstractContextManager[BinaryIO]:
    if found := OPEN_FILE.fullmatch(str(given)):
        stream, number = found.groups()
        # A copy of the descriptor writes where the shell's own stands: behind what others have written.
        return os.fdopen(os.dup(STREAMS[stream] if stream else int(number)), "wb")
    is_pipe = given.exists() and not given.is_file()  # or a device: neither must be replaced
    return given.open("wb") if is_pipe else replaced(path)


def _chunks(source: io.BufferedIOBase) -> Iterator[list[bytes]]:
    r"""Lines without their `\n`, in lists of what had arrived, at most `LINES_AT_ONCE` long."""
    rest, most = b"", FIRST_LINES
    while data := _read(source):
        *lines, rest = (rest + data).split(b"\n")
        # Never kept back for more to come: whoever writes may be waiting for the answer.
        while lines:
            yield lines[:most]
            lines, most = lines[most:], min(2 * most, LINES_AT_ONCE)
    if rest:
        yield [rest]


def _read(source: io.BufferedIOBase) -> bytes:
    try:
        return source.read1(READ_BYTES)
    except OSError as error:
        raise DataError(f"the input cannot be read: {error.strerror}") from error
