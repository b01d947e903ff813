"""Streams of lines: what is translated, and where translations go. Only LF ends a line."""

import io
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, cast

from mt_cli.data.files import (
    DAMAGE,
    PACKED_ENDINGS,
    check_is_text,
    named_kind,
    open_text,
    read_errors_named,
)
from mt_cli.errors import ResourceError, UsageError
from mt_cli.machine.files import replaced, write_errors_named
from mt_cli.machine.terminal import is_terminal, print_stderr, write_bytes
from mt_cli.text.normalize import decode_line, is_valid_utf8

log = logging.getLogger(__name__)

PROMPT = "> "
MAX_WARNINGS = 3
"""Of lines that are not UTF-8; for more, only their number."""
FIRST_LINES = 128
"""Few, so that the first translations come soon; each later portion is twice as large."""
LINES_TOGETHER = 2048
"""Enough that sorting by length fills batches evenly, few enough that memory stays small."""
LINES_FOR_GPU = 16_384
"""Enough for two batches."""
SHELL_FILE = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/(?:self|thread-self))/fd/(\d+)")
"""Names of what a shell has opened for this program, as in `-o /dev/stdout >> file`."""
BYTES_OF_LINE = 128
"""More than most lines have."""


def portions(source: io.BufferedIOBase, *, for_gpu: bool) -> Iterator[list[str]]:
    """The lines of `source` in portions to be translated; a terminal's come one by one."""
    if source.isatty():
        return typed_lines(source)
    return line_chunks(source, most=LINES_FOR_GPU if for_gpu else LINES_TOGETHER)


def line_chunks(
    source: io.BufferedIOBase, *, side: str = "", most: int = LINES_TOGETHER
) -> Iterator[list[str]]:
    """The lines of `source` as they arrive: one by one as a person types, many at once from a file.

    At most `most` come together. `side` is what warnings of lines that are not UTF-8 call it,
    beside the line's number.
    """
    name = str(getattr(source, "name", "the input"))
    decoder = _LineDecoder(side)
    max_lines = FIRST_LINES
    unfinished = b""
    is_first = True
    has_more = True
    while has_more:
        with read_errors_named(Path(name)):
            data = source.read1(most * BYTES_OF_LINE)
        if is_first:
            check_is_text(data, None)
            is_first = False
        has_more = bool(data)
        *lines, unfinished = (unfinished + data).split(b"\n")
        if unfinished and not has_more:
            lines = [unfinished]
        # Never kept back for more to come: whoever writes may be waiting for the answer.
        begin = 0
        while begin < len(lines):
            yield decoder.decode(lines[begin : begin + max_lines])
            begin += max_lines
            max_lines = min(2 * max_lines, most)
    decoder.warn_of_others()


class _LineDecoder:
    """Decodes lines, and warns of those that are not UTF-8."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._number = 0
        self._num_invalid = 0

    def decode(self, lines: Sequence[bytes]) -> list[str]:
        for raw in lines:
            self._number += 1
            if not is_valid_utf8(raw):
                self._num_invalid += 1
                if self._num_invalid <= MAX_WARNINGS:
                    place = f"{self._side} line {self._number}".lstrip()
                    log.warning("%s: not valid UTF-8; what could not be read was left out", place)
        return [decode_line(raw) for raw in lines]

    def warn_of_others(self) -> None:
        if self._num_invalid > MAX_WARNINGS:
            log.warning("%d lines in all are not valid UTF-8", self._num_invalid)


def typed_lines(source: io.BufferedIOBase) -> Iterator[list[str]]:
    """Lines as a person types them into the terminal `source`, at a prompt; Ctrl-D ends them.

    They can be edited, and earlier ones called back, where the translations go to the terminal too.
    """
    while line := _prompted(source):
        yield [decode_line(line)]


def _prompted(source: io.BufferedIOBase) -> bytes:
    if not is_terminal(sys.stdout):
        print_stderr(PROMPT, end="")
        return source.readline()
    with suppress(ImportError):  # Windows has none
        import readline  # noqa: F401 — input() uses it
    try:
        return input(PROMPT).encode("utf-8", "surrogateescape") + b"\n"
    except EOFError:
        return b""


def open_source(name: str, *, text: str | None = None) -> AbstractContextManager[io.BufferedIOBase]:
    """The bytes to translate: `text` if given, else the file `name`, where `-` is stdin."""
    if text is not None:
        return io.BytesIO(text.encode("utf-8", "surrogateescape") + b"\n")
    if name == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed; name a file with --input, or use --text")
        with suppress(OSError):  # no real stream, as in a test
            # Otherwise what has not come yet would be taken for the end.
            os.set_blocking(sys.stdin.fileno(), True)
        return nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    path = Path(name)
    if named_kind(path) == "json":
        log.warning("%s: each line is translated as text, although the name says otherwise", path)
    return open_text(path)


def count_lines(source: io.BufferedIOBase) -> int | None:
    """Lines from where `source` stands; None if that cannot be known, as of a pipe."""
    try:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            return None
        begin = source.tell()
        num_lines = sum(1 for _ in source)
        source.seek(begin)
    except (OSError, *DAMAGE):  # no real stream, or a damaged one: translating it will say so
        return None
    return num_lines


class Target:
    """Where translations go."""

    def __init__(self, file: BinaryIO, path: Path | None) -> None:
        """Without a `path`, `file` is standard output."""
        self.file = file
        self._path = path
        self.num_lines = 0
        self._num_bytes = 0

    def write(self, data: bytes) -> None:
        """Write whole lines at once."""
        if self._path is None:
            write_bytes(data)
        else:
            with write_errors_named(self._path):
                self.file.write(data)
                self.file.flush()
        self.num_lines += data.count(b"\n")
        self._num_bytes += len(data)

    def keep_as(self, path: Path) -> None:
        """Give what is written of a file that will not be completed the name `path`.

        It is not copied, because the disk may be full.
        """
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            os.truncate(self.file.name, self._num_bytes)  # without a part of a line
            Path(self.file.name).replace(path)
            log.warning("%d translated lines are kept in %s", self.num_lines, path)


@contextmanager
def open_target(name: str) -> Iterator[Target]:
    """Where translations go: stdout for `-`, else a file that appears when it is complete."""
    path = Path(name)
    if name == "-":
        if sys.stdout is None:
            raise ResourceError("standard output is closed; name a file with --output")
        yield Target(sys.stdout.buffer, None)
        return
    file = _open_in_place(path)
    if file is not None:
        with file:
            yield Target(file, path)
        return
    if path.suffix in PACKED_ENDINGS:
        raise UsageError(
            f"{name}: translations are written as plain text; name a file without {path.suffix}, "
            "or send them to a program that packs"
        )
    # Of a link, the file is replaced and not the link.
    place = path.resolve() if path.is_symlink() else path
    with write_errors_named(path):
        place.parent.mkdir(parents=True, exist_ok=True)
    with replaced(place) as replacement:
        target = Target(replacement, path)
        try:
            yield target
        except BaseException:
            if target.num_lines:
                target.keep_as(_free_name(f"{place}.partial"))
            raise


def _free_name(name: str) -> Path:
    """`name`, or with a number after it if there is such a file."""
    path = Path(name)
    number = 1
    while path.exists():
        number += 1
        path = Path(f"{name}{number}")
    return path


def _open_in_place(path: Path) -> BinaryIO | None:
    """What must be written to and not replaced: the shell's own file, a pipe or a device."""
    with write_errors_named(path):
        if found := SHELL_FILE.fullmatch(str(path)):
            stream, number = found.groups()
            descriptor = {"stdout": 1, "stderr": 2}[stream] if stream else int(number)
            # A copy of it writes where the shell's own stands: behind what others have written.
            return os.fdopen(os.dup(descriptor), "wb")
        if path.exists() and not path.is_file():
            return path.open("wb")
    return None
