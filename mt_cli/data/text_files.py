"""Text files as people have them: lines, compressed or not, and the kinds of other files."""

import codecs
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, cast

from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import MAX_TEXT_BYTES, damage_named
from mt_cli.text.normalize import decode_line, is_valid_utf8, split_lines

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile

MAX_LINE = 1 << 20
"""Maximum bytes of a line."""
HEAD_BYTES = 1 << 16
"""Number of bytes for detecting the kind of a file."""
MAX_NULS = 0.3
"""Share of NUL bytes above which a file is not text."""
MIN_BYTES = 16
"""Minimum bytes for this check."""
RETURNS_PER_LINE = 50
"""Carriage returns per line feed from which they count as the line ends."""
PACKINGS: dict[bytes, Callable[[BinaryIO], object]] = {
    rb"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    # Includes skippable frames, with which some zstd files begin.
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": ZstdFile,
    rb"\xfd7zXZ\x00": lzma.LZMAFile,
}
"""Patterns for the beginning of compressed files, and how to open them."""
PACKED_ENDINGS = frozenset((".gz", ".zst", ".xz"))
NO_TEXT = re.compile(
    rb"\xff\xfe|\xfe\xff|PK\x03\x04|\xd0\xcf\x11\xe0|%PDF-\d|\{\\rtf\d|PAR1\x15|BZh\d1AY|Rar!\x1a|"
    rb"7z\xbc\xaf|SQLite format 3\x00|\x89PNG|(?:\xef\xbb\xbf)?(?:<\?xml|<tmx|<!DOCTYPE)|"
    + rb"|".join(PACKINGS)
)
"""Beginnings of files that are not text; after decompression, also compressed ones."""
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, ZstdError, lzma.LZMAError)
"""Exceptions for damaged compressed files."""


@contextmanager
def open_text(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a text file as bytes, decompressed if necessary, without a byte order mark.

    Raises:
        DataError: the file is missing, or is not UTF-8 text.
    """
    with open_bytes(path) as content:
        head = content.peek(HEAD_BYTES)
        check_is_text(head, path)
        if head.startswith(codecs.BOM_UTF8):
            content.read(len(codecs.BOM_UTF8))
        yield content


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file as bytes, decompressed if necessary.

    Raises:
        DataError: the file is missing, or is compressed and damaged.
    """
    if path.is_dir() or not path.exists():
        raise DataError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
    with damage_named(path, "compressed file", *DAMAGE), ExitStack() as stack:
        file = stack.enter_context(path.open("rb", buffering=HEAD_BYTES))
        yield stack.enter_context(unpacked(cast("io.BufferedReader", file)))


def unpacked(file: io.BufferedReader) -> io.BufferedReader:
    """`file`, or its decompressed content; all these classes have the methods of a reader."""
    head = file.peek(HEAD_BYTES)
    for beginning, unpack in PACKINGS.items():
        if re.match(beginning, head):
            return cast("io.BufferedReader", unpack(file))
    return file


def check_is_text(head: bytes, path: Path | None) -> None:
    """Check by its beginning `head` that a file is text with line feeds as line ends.

    `path` is None for standard input.

    Raises:
        DataError: it is something else.
    """
    name = "standard input" if path is None else str(path)
    is_full_of_nuls = len(head) >= MIN_BYTES and head.count(0) > MAX_NULS * len(head)
    lone_returns = len(re.findall(rb"\r(?![\r\n]|$)", head))
    has_other_line_ends = lone_returns > RETURNS_PER_LINE * head.count(b"\n")
    if NO_TEXT.match(head) or is_full_of_nuls or has_other_line_ends:
        raise DataError(
            f"{name}: expected lines of UTF-8, plain, .gz, .zst or .xz; found {shown(head)}"
        )


def read_text(path: Path) -> bytes:
    """Read a whole text file, as with `open_text`.

    Raises:
        DataError: the file cannot be read, is not text, or is too large.
    """
    with open_text(path) as content:
        data = content.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise DataError(
            f"{path}: larger than {MAX_TEXT_BYTES:,} bytes; split it into smaller files"
        )
    return data


def scored_lines(content: bytes, path: Path) -> list[str]:
    """The lines in the `content` of `path`, which must all be UTF-8: other bytes change scores.

    Raises:
        DataError: a line is not UTF-8.
    """
    for number, line in enumerate(content.split(b"\n"), 1):
        if not is_valid_utf8(line):
            raise DataError(f"{path}: line {number} is not UTF-8; convert it with iconv")
    return split_lines(content)


def check_aligned(path: Path, lines: Sequence[str], to: str, to_lines: Sequence[str]) -> None:
    """Check that `path` and `to` have the same number of lines.

    Raises:
        DataError: they do not.
    """
    if len(lines) != len(to_lines):
        raise DataError(
            f"{path}: {len(lines)} lines, but {to} has {len(to_lines)}; lines must align"
        )


def check_is_lines(path: Path) -> None:
    """Reject a file that is not plain lines by its name, such as a table.

    Raises:
        UsageError: the name is that of another kind of file.
    """
    kind = named_kind(path)
    if kind:
        raise UsageError(
            f"{path}: cannot read a {kind} file here; use a text file with one text per line "
            "(translate takes a column of a .csv or .tsv file with --columns)"
        )


def text_lines(path: Path) -> Iterator[bytes]:
    """The raw lines of a text file, including line ends.

    A too long line is rejected after reading `MAX_LINE` + 1 bytes.
    """
    with open_text(path) as content:
        pieces = iter(partial(content.readline, MAX_LINE + 1), b"")
        for number, line in enumerate(pieces, start=1):
            if len(line) > MAX_LINE:
                raise DataError(f"{path}: line {number}: longer than {MAX_LINE:,} bytes")
            yield line


# Kinds of files

Kind = Literal["tsv", "csv", "json", "parquet", "tmx"]
"""Kinds of files that are not plain lines."""
ENDINGS: dict[str, Kind] = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".tmx": "tmx",
}
MAX_QUOTATION = 80
"""Maximum characters of a file that an error quotes."""


def named_kind(path: Path) -> Kind | None:
    """The kind of a file by its name; None for lines of text."""
    return ENDINGS.get(without_packing(path).suffix.lower())


def without_packing(path: Path) -> Path:
    """`path` without the ending of a compressed file."""
    return path.with_suffix("") if path.suffix.lower() in PACKED_ENDINGS else path


def kind_of(path: Path) -> Kind:
    """The kind of a file with columns, by its name, or else by its first line.

    Raises:
        DataError: the file has no columns.
    """
    if kind := named_kind(path):
        return kind
    first = next(text_lines(path), b"").lstrip()
    if first.startswith(b"{"):
        return "json"
    if b"\t" in first:
        return "tsv"
    raise DataError(f"{path}: the first line has neither a tab nor a JSON object: {shown(first)}")


def shown(raw: bytes) -> str:
    """The beginning of a line, to quote in an error."""
    return repr(decode_line(raw)[:MAX_QUOTATION])
