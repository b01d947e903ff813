"""Text files as people have them: packed or not, of several kinds; and files that are no text."""

import codecs
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

from mt_cli.errors import DataError
from mt_cli.machine.files import MAX_TEXT_BYTES
from mt_cli.text.normalize import decode_line, split_lines

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
GZIP = rb"\x1f\x8b"
ZSTD = rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"
"""Also a frame without text, with which some zstd files begin."""
XZ = rb"\xfd7zXZ\x00"


class Packing(NamedTuple):
    """A way to pack a file."""

    ending: str
    """Of the file's name, with its dot."""
    beginning: bytes
    """A pattern of the file's first bytes."""
    open: Callable[[BinaryIO], object]
    """Gives a file that unpacks."""


PACKINGS = (
    Packing(".gz", GZIP, lambda file: gzip.GzipFile(fileobj=file)),
    Packing(".zst", ZSTD, ZstdFile),
    Packing(".xz", XZ, lzma.LZMAFile),
)
PACKED_ENDINGS = frozenset(packing.ending for packing in PACKINGS)
NO_TEXT = re.compile(
    rb"\xff\xfe|\xfe\xff|PK\x03\x04|\xd0\xcf\x11\xe0|%PDF-\d|\{\\rtf\d|PAR1\x15|BZh\d1AY|Rar!\x1a|"
    rb"7z\xbc\xaf|SQLite format 3\x00|\x89PNG|(?:\xef\xbb\xbf)?(?:<\?xml|<tmx|<!DOCTYPE)|"
    + rb"|".join((GZIP, ZSTD, XZ))
)
"""How files begin that are no text, among them those that are packed twice."""
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, ZstdError, lzma.LZMAError)
"""What reading a damaged packed file raises."""


@contextmanager
def open_text(path: Path) -> Iterator[io.BufferedIOBase]:
    """The bytes of the text file `path`, unpacked if it is packed, without its byte order mark.

    Raises:
        DataError: it cannot be read, or is no text in UTF-8.
    """
    with ExitStack() as stack:
        with read_errors_named(path):
            if path.is_dir() or not path.exists():
                raise DataError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
            file = stack.enter_context(path.open("rb", buffering=HEAD_BYTES))
            content = stack.enter_context(unpacked(cast("io.BufferedReader", file)))
            head = content.peek(HEAD_BYTES)
            check_is_text(head, path)
            if head.startswith(codecs.BOM_UTF8):
                content.read(len(codecs.BOM_UTF8))
        yield content


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file, unpacked if it is packed.

    Raises:
        DataError: it cannot be read.
    """
    with read_errors_named(path), path.open("rb") as file, unpacked(file) as content:
        yield content


def unpacked(file: io.BufferedReader) -> io.BufferedReader:
    """`file`, or its unpacked content; all of these classes have the methods of a reader."""
    head = file.peek(HEAD_BYTES)
    packing = _packing_of(head)
    return file if packing is None else cast("io.BufferedReader", packing.open(file))


def _packing_of(head: bytes) -> Packing | None:
    """How a file that begins with `head` is packed; None if it is not."""
    for packing in PACKINGS:
        if re.match(packing.beginning, head):
            return packing
    return None


def check_is_text(head: bytes, path: Path | None) -> None:
    """Make sure that what begins with `head` is text whose lines can be told apart.

    It is in `path`, or on standard input.

    Raises:
        DataError: it is something else; the error says what.
    """
    name = "standard input" if path is None else str(path)
    is_full_of_nuls = len(head) >= MIN_BYTES and head.count(0) > MAX_NULS * len(head)
    lone_returns = len(re.findall(rb"\r(?![\r\n]|$)", head))
    if (
        NO_TEXT.match(head)
        or is_full_of_nuls
        or lone_returns > RETURNS_PER_LINE * head.count(b"\n")
    ):
        raise DataError(
            f"{name}: expected lines of text in UTF-8, as they are or packed as .gz, .zst or .xz; "
            f"found {shown(head)}"
        )


@contextmanager
def read_errors_named(path: Path) -> Iterator[None]:
    """Report what fails while `path` is read as an error of that file."""
    try:
        yield
    except DAMAGE as error:
        raise DataError(f"{path}: a damaged packed file ({error}); get it anew") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_text(path: Path) -> bytes:
    """The whole content of a text file, as `open_text` gives it.

    Raises:
        DataError: it cannot be read, is no text, or is too large.
    """
    with read_errors_named(path), open_text(path) as content:
        data = content.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise DataError(f"{path}: more than {MAX_TEXT_BYTES:,} bytes; split it into smaller files")
    return data


def scored_lines(content: bytes, path: Path) -> list[str]:
    """The lines of the `content` of `path`, all of which are UTF-8: other bytes change scores.

    Raises:
        DataError: one is not.
    """
    try:
        content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}: line {number} is not UTF-8; convert the file with iconv"
        ) from error
    return split_lines(content)


def text_lines(path: Path) -> Iterator[bytes]:
    """The raw lines of a text file, line ends included.

    At most `MAX_LINE` + 1 bytes of a line are read before it is refused.
    """
    with read_errors_named(path), open_text(path) as content:
        pieces = iter(partial(content.readline, MAX_LINE + 1), b"")
        for number, line in enumerate(pieces, start=1):
            if len(line) > MAX_LINE:
                raise DataError(
                    f"{path}: line {number}: longer than {MAX_LINE:,} bytes; expected a "
                    "sentence a line"
                )
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
    raise DataError(
        f"{path}: no columns: its first line has no tab, and is no JSON object: {shown(first)}"
    )


def shown(raw: bytes) -> str:
    """The beginning of a line, for an error."""
    return repr(decode_line(raw)[:MAX_QUOTATION])
