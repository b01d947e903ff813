"""Streams of lines: what is translated, and where translations go. Only LF ends a line."""

import io
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, cast

from mt_cli.data.text_files import (
    DAMAGE,
    PACKED_ENDINGS,
    check_is_lines,
    check_is_text,
    named_kind,
    open_text,
)
from mt_cli.errors import ResourceError, UsageError
from mt_cli.machine.files import damage_named, errors_naming, replaced
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
DOCUMENT_ENDINGS = frozenset(
    (".doc", ".docx", ".odt", ".ods", ".pdf", ".ppt", ".pptx", ".rtf", ".xls", ".xlsx", ".zip")
)
BYTES_OF_LINE = 128
"""More than most lines have."""


def portions(source: io.BufferedIOBase, *, for_gpu: bool) -> Iterator[list[str]]:
    """The lines of `source` in portions to be translated; a terminal's come one by one."""
    if not source.isatty():
        yield from line_chunks(source, most=LINES_FOR_GPU if for_gpu else LINES_TOGETHER)
        return
    with suppress(ImportError):  # Windows has none
        import readline  # noqa: F401 — with it, input() lets people edit and call back lines
    prompt = PROMPT if is_terminal(sys.stdout) else ""  # which would go into a file otherwise
    with suppress(EOFError):  # Ctrl-D
        while True:
            if not prompt:
                print_stderr(PROMPT, end="")
            yield [decode_line(input(prompt).encode("utf-8", "surrogateescape"))]


def line_chunks(
    source: io.BufferedIOBase, *, side: str = "", most: int = LINES_TOGETHER
) -> Iterator[list[str]]:
    """The lines of `source` as they arrive: one by one as a person types, many at once from a file.

    At most `most` come together. `side` is what warnings of lines that are not UTF-8 call it,
    beside the line's number.
    """
    name = Path(str(getattr(source, "name", "the input")))
    max_lines = FIRST_LINES
    number = 0
    num_invalid = 0
    unfinished = b""
    has_more = True
    while has_more:
        with damage_named(name, "compressed file", *DAMAGE), errors_naming(name):
            data = source.read1(most * BYTES_OF_LINE)
        if not number and not unfinished:
            check_is_text(data, None)
        has_more = bool(data)
        *lines, unfinished = (unfinished + data).split(b"\n")
        if unfinished and not has_more:
            lines = [unfinished]
        for raw in lines:
            number += 1
            if not is_valid_utf8(raw):
                num_invalid += 1
                if num_invalid <= MAX_WARNINGS:
                    place = f"{side} line {number}".lstrip()
                    log.warning("%s: not valid UTF-8; skipped the invalid bytes", place)
        # Never kept back for more to come: whoever writes may be waiting for the answer.
        begin = 0
        while begin < len(lines):
            yield [decode_line(raw) for raw in lines[begin : begin + max_lines]]
            begin += max_lines
            max_lines = min(2 * max_lines, most)
    if num_invalid > MAX_WARNINGS:
        log.warning("%d lines in total are not valid UTF-8", num_invalid)


def open_source(name: str, *, text: str | None = None) -> AbstractContextManager[io.BufferedIOBase]:
    """The bytes to translate: `text` if given, else the file `name`, where `-` is stdin."""
    if text is not None:
        return io.BytesIO(text.encode("utf-8", "surrogateescape") + b"\n")
    if name == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed; use --input FILE or --text")
        with suppress(OSError):  # no real stream, as in a test
            # Otherwise what has not come yet would be taken for the end.
            os.set_blocking(sys.stdin.fileno(), True)
        return nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    path = Path(name)
    check_is_lines(path)
    return open_text(path)


def count_lines(source: io.BufferedIOBase) -> int | None:
    """Lines from where `source` stands; None if that cannot be known, as of a pipe."""
    with suppress(OSError, *DAMAGE):  # no real stream, or a damaged one: translating it says so
        if stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            begin = source.tell()
            num_lines = sum(1 for _ in source)
            source.seek(begin)
            return num_lines
    return None


class Target:
    """Where translations go."""

    def __init__(self, file: BinaryIO, path: Path | None) -> None:
        """Without a `path`, `file` is standard output."""
        self._file = file
        self._path = path
        self.num_lines = 0
        self.num_bytes = 0

    def isatty(self) -> bool:
        """Whether a person reads it."""
        return self._file.isatty()

    def write(self, data: bytes) -> None:
        """Write whole lines at once."""
        if self._path is None:
            write_bytes(data)
        else:
            with errors_naming(self._path):
                self._file.write(data)
                self._file.flush()
        self.num_lines += data.count(b"\n")
        self.num_bytes += len(data)


@contextmanager
def open_target(name: str) -> Iterator[Target]:
    """Where translations go: stdout for `-`, else a file that appears when it is complete.

    Lines that are written of a file that is not completed are kept beside it, as NAME.partial.
    """
    if name in ("-", "/dev/stdout"):
        if sys.stdout is None:
            raise ResourceError("standard output is closed; use --output FILE")
        yield Target(sys.stdout.buffer, None)
        return
    path = Path(name)
    is_open_file = path.is_relative_to("/dev") or path.is_relative_to("/proc")  # as in 3>>file
    if is_open_file or (path.exists() and not path.is_file()):  # or a pipe
        with path.open("ab", buffering=0) as file:
            yield Target(file, path)
        return
    ending = path.suffix.lower()
    is_no_text = named_kind(path) in ("parquet", "tmx")
    if is_no_text or ending in PACKED_ENDINGS or ending in DOCUMENT_ENDINGS:
        raise UsageError(
            f"{name}: cannot write this file type; use plain text, or .csv or .tsv for a "
            "spreadsheet"
        )
    # Of a link, the file is replaced and not the link.
    place = path.resolve() if path.is_symlink() else path
    with errors_naming(path):
        place.parent.mkdir(parents=True, exist_ok=True)
    with replaced(place) as replacement:
        target = Target(replacement, path)
        try:
            yield target
        except BaseException:
            if target.num_lines:
                os.truncate(replacement.name, target.num_bytes)  # a full disk may cut a line
                kept = Path(f"{place}.partial")
                while kept.exists():
                    kept = kept.with_name(f"{kept.name}2")
                Path(replacement.name).replace(kept)
                log.warning("saved the %d lines translated so far in %s", target.num_lines, kept)
            raise
