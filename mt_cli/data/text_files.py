"""Text files as people have them: lines, packed or not, and what kind of file a name promises."""

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
from mt_cli.text.normalize import (
    decode_line,
    is_valid_utf8,
    split_lines,
)

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile

MAX_LINE = 1 << 20
"""Bytes of a line."""
HEAD_BYTES = 1 << 16
"""Bytes from which is told what a file is."""
MAX_NULS = 0.3
"""Share of NUL bytes that no text has."""
MIN_BYTES = 16
"""Fewer say nothing of the whole."""
RETURNS_PER_LINE = 50
"""Carriage returns for each line end from which on they are the line ends."""
PACKINGS: dict[bytes, Callable[[BinaryIO], object]] = {
    rb"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    # Also a frame without text, with which some zstd files begin.
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": ZstdFile,
    rb"\xfd7zXZ\x00": lzma.LZMAFile,
}
"""How packed files begin, and what gives a file that unpacks them."""
PACKED_ENDINGS = frozenset((".gz", ".zst", ".xz"))
NO_TEXT = re.compile(
    rb"\xff\xfe|\xfe\xff|PK\x03\x04|\xd0\xcf\x11\xe0|%PDF-\d|\{\\rtf\d|PAR1\x15|BZh\d1AY|Rar!\x1a|"
    rb"7z\xbc\xaf|SQLite format 3\x00|\x89PNG|(?:\xef\xbb\xbf)?(?:<\?xml|<tmx|<!DOCTYPE)|"
    + rb"|".join(PACKINGS)
)
"""How files begin that are no text, among them those that are packed twice."""
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, ZstdError, lzma.LZMAError)
"""What unpacking a damaged file raises."""


@contextmanager
def open_text(path: Path) -> Iterator[io.BufferedIOBase]:
    """The bytes of the text file `path`, unpacked if it is packed, without its byte order mark.

    Raises:
        DataError: it is not there, or is no text in UTF-8.
    """
    with open_bytes(path) as content:
        head = content.peek(HEAD_BYTES)
        check_is_text(head, path)
        if head.startswith(codecs.BOM_UTF8):
            content.read(len(codecs.BOM_UTF8))
        yield content


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file, unpacked if it is packed.

    Raises:
        DataError: it is not there, or is packed and damaged.
    """
    if path.is_dir() or not path.exists():
        raise DataError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
    with damage_named(path, "packed file", *DAMAGE), ExitStack() as stack:
        file = stack.enter_context(path.open("rb", buffering=HEAD_BYTES))
        yield stack.enter_context(unpacked(cast("io.BufferedReader", file)))


def unpacked(file: io.BufferedReader) -> io.BufferedReader:
    """`file`, or its unpacked content; all of these classes have the methods of a reader."""
    head = file.peek(HEAD_BYTES)
    for beginning, unpack in PACKINGS.items():
        if re.match(beginning, head):
            return cast("io.BufferedReader", unpack(file))
    return file


def check_is_text(head: bytes, path: Path | None) -> None:
    """Make sure that what begins with `head` is text whose lines can be told apart.

    It is in `path`, or on standard input.

    Raises:
        DataError: it is something else.
    """
    name = "standard input" if path is None else str(path)
    is_full_of_nuls = len(head) >= MIN_BYTES and head.count(0) > MAX_NULS * len(head)
    lone_returns = len(re.findall(rb"\r(?![\r\n]|$)", head))
    has_other_line_ends = lone_returns > RETURNS_PER_LINE * head.count(b"\n")
    if NO_TEXT.match(head) or is_full_of_nuls or has_other_line_ends:
        raise DataError(
            f"{name}: expected lines of UTF-8, plain or as .gz, .zst or .xz; found {shown(head)}"
        )


def read_text(path: Path) -> bytes:
    """The whole content of a text file, as `open_text` gives it.

    Raises:
        DataError: it cannot be read, is no text, or is too large.
    """
    with open_text(path) as content:
        data = content.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise DataError(f"{path}: more than {MAX_TEXT_BYTES:,} bytes; split it into smaller files")
    return data


def scored_lines(content: bytes, path: Path) -> list[str]:
    """The lines of the `content` of `path`, all of which are UTF-8: other bytes change scores.

    Raises:
        DataError: one is not.
    """
    for number, line in enumerate(content.split(b"\n"), 1):
        if not is_valid_utf8(line):
            raise DataError(f"{path}: line {number} is not UTF-8; convert it with iconv")
    return split_lines(content)


def check_aligned(path: Path, lines: Sequence[str], to: str, to_lines: Sequence[str]) -> None:
    """Make sure that `lines`, of `path`, are as many as `to_lines`, those of what `to` names.

    Raises:
        DataError: they are not.
    """
    if len(lines) != len(to_lines):
        raise DataError(
            f"{path}: {len(lines)} lines, but {to} has {len(to_lines)}; they must align"
        )


def check_is_lines(path: Path) -> None:
    """Refuse a file whose name says that it is more than lines, as a table is.

    Raises:
        UsageError: it is.
    """
    kind = named_kind(path)
    if kind:
        raise UsageError(
            f"{path}: a {kind} file cannot be read here; give a text file with one text a line "
            "(translate takes a column of a .csv or .tsv file with --columns)"
        )


def text_lines(path: Path) -> Iterator[bytes]:
    """The raw lines of a text file, line ends included.

    At most `MAX_LINE` + 1 bytes of a line are read before it is refused.
    """
    with open_text(path) as content:
        pieces = iter(partial(content.readline, MAX_LINE + 1), b"")
        for number, line in enumerate(pieces, start=1):
            if len(line) > MAX_LINE:
                raise DataError(f"{path}: line {number}: longer than {MAX_LINE:,} bytes")
            yield line


# What a file is

Kind = Literal["tsv", "csv", "json", "parquet", "tmx"]
"""Of a file that is more than lines."""
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
"""Characters of a file that an error shows."""


def named_kind(path: Path) -> Kind | None:
    """What a file's name says that it is; None is lines of text."""
    return ENDINGS.get(without_packing(path).suffix.lower())


def without_packing(path: Path) -> Path:
    """`path` without the ending that says how the file is packed."""
    return path.with_suffix("") if path.suffix.lower() in PACKED_ENDINGS else path


def kind_of(path: Path) -> Kind:
    """What a file with columns is, by its name, or else by its first line.

    Raises:
        DataError: it has no columns.
    """
    if kind := named_kind(path):
        return kind
    first = next(text_lines(path), b"").lstrip()
    if first.startswith(b"{"):
        return "json"
    if b"\t" in first:
        return "tsv"
    raise DataError(f"{path}: no tab and no JSON object in its first line: {shown(first)}")


def shown(raw: bytes) -> str:
    """The beginning of a line, for an error."""
    return repr(decode_line(raw)[:MAX_QUOTATION])
