"""Streams of lines: the input to translate and the output. Only LF ends a line."""

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
"""Maximum number of warnings about invalid UTF-8; beyond it, only the total is reported."""
FIRST_LINES = 128
"""Few, so that the first translations appear soon; each later portion is twice as large."""
LINES_TOGETHER = 2048
"""Enough lines to sort by length into even batches, few enough to keep memory small."""
LINES_FOR_GPU = 16_384
"""Enough lines for two batches."""
DOCUMENT_ENDINGS = frozenset(
    (".doc", ".docx", ".odt", ".ods", ".pdf", ".ppt", ".pptx", ".rtf", ".xls", ".xlsx", ".zip")
)
BYTES_OF_LINE = 128
"""More than most lines have."""


def portions(source: io.BufferedIOBase, *, for_gpu: bool) -> Iterator[list[str]]:
    """The lines of `source` in portions to translate; one by one from a terminal."""
    if not source.isatty():
        yield from line_chunks(source, most=LINES_FOR_GPU if for_gpu else LINES_TOGETHER)
        return
    with suppress(ImportError):  # Windows has none
        import readline  # noqa: F401 — gives input() line editing and history
    prompt = PROMPT if is_terminal(sys.stdout) else ""  # keep the prompt out of files
    with suppress(EOFError):  # Ctrl-D
        while True:
            if not prompt:
                print_stderr(PROMPT, end="")
            yield [decode_line(input(prompt).encode("utf-8", "surrogateescape"))]


def line_chunks(
    source: io.BufferedIOBase, *, side: str = "", most: int = LINES_TOGETHER
) -> Iterator[list[str]]:
    """The lines of `source` as they arrive: single lines from a person, many from a file.

    A chunk has at most `most` lines. Warnings about invalid UTF-8 name the line's number and
    `side`.
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
        # Never wait for more lines: the writer may be waiting for the answer.
        begin = 0
        while begin < len(lines):
            yield [decode_line(raw) for raw in lines[begin : begin + max_lines]]
            begin += max_lines
            max_lines = min(2 * max_lines, most)
    if num_invalid > MAX_WARNINGS:
        log.warning("%d lines in total are not valid UTF-8", num_invalid)


def open_source(name: str, *, text: str | None = None) -> AbstractContextManager[io.BufferedIOBase]:
    """Open the input to translate: `text` if given, else the file `name`; `-` is stdin."""
    if text is not None:
        return io.BytesIO(text.encode("utf-8", "surrogateescape") + b"\n")
    if name == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed; use --input FILE or --text")
        with suppress(OSError):  # not a real stream, as in tests
            # In non-blocking mode, a pause in the input would look like its end.
            os.set_blocking(sys.stdin.fileno(), True)
        return nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    path = Path(name)
    check_is_lines(path)
    return open_text(path)


def count_lines(source: io.BufferedIOBase) -> int | None:
    """Number of remaining lines in `source`; None if unknown, as for a pipe."""
    with suppress(OSError, *DAMAGE):  # not a real stream, or damaged: reading it will tell
        if stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            begin = source.tell()
            num_lines = sum(1 for _ in source)
            source.seek(begin)
            return num_lines
    return None


class Target:
    """Where translations go."""

    def __init__(self, file: BinaryIO, path: Path | None) -> None:
        """`path` is None for standard output."""
        self._file = file
        self._path = path
        self.num_lines = 0
        self.num_bytes = 0

    def isatty(self) -> bool:
        """Whether the target is a terminal."""
        return self._file.isatty()

    def write(self, data: bytes) -> None:
        """Write whole lines and flush."""
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
    """Open the target for translations: stdout for `-`, else a file that appears once complete.

    If writing fails or is interrupted, the lines so far are kept beside it as NAME.partial.
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
    # Replace the file that a symlink points to, not the link.
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
