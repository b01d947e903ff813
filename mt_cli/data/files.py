"""Text files as people have them: packed or not, lines or columns; and files that are no text."""

import bz2
import codecs
import csv
import functools
import gzip
import io
import json
import lzma
import re
import shlex
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal, cast

from mt_cli.config.schema import Column
from mt_cli.errors import DataError
from mt_cli.machine.files import MAX_TEXT_BYTES
from mt_cli.text.normalize import decode_line, normalize, strip_line_end

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
ZSTD = rb"\x28\xb5\x2f\xfd"
ZSTD_SKIPPED = rb"[\x50-\x5f]\x2a\x4d\x18"
"""Of a frame without text, with which some zstd files begin."""
XZ = rb"\xfd7zXZ\x00"
BZIP2 = rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)"
KINDS = (
    (
        rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff",
        "UTF-32 text; convert it: iconv -f utf-32 -t utf-8 {0} > NEW",
    ),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text; convert it: iconv -f utf-16 -t utf-8 {0} > NEW"),
    (GZIP, "a .gz file; unpack it: gunzip -c {0}"),
    (ZSTD, "a .zst file; unpack it: zstd -dc {0}"),
    (XZ, "an .xz file; unpack it: xz -dc {0}"),
    (BZIP2, "a .bz2 file; unpack it: bzip2 -dc {0}"),
    (
        rb"\x5d\x00\x00|\x04\x22\x4d\x18|\x1f\x9d|7z\xbc\xaf|Rar!\x1a",
        "packed (.lzma, .lz4, .Z, .7z or .rar); unpack it",
    ),
    (
        rb"PK\x03\x04",
        "a .zip file, as .xlsx, .ods and .docx files are; unpack it, or save it as text",
    ),
    (rb"(?s:.{257})ustar", "a .tar archive; unpack it, and name a file of it"),
    (rb"\xd0\xcf\x11\xe0|%PDF-|{\\rtf", "an Office document or a PDF; save it as text"),
    (
        rb"PAR1\x15|SQLite format 3\x00|\x93NUMPY|\x89PNG|\xff\xd8\xff|\x7fELF",
        "no text, but data of a program",
    ),
    (
        rb"(?:\xef\xbb\xbf)?<\?xml|<tmx|<!DOCTYPE",
        "markup, which is read where the file's name ends in .tmx, .xlf or .xliff",
    ),
)
"""How files begin that are not lines of text in UTF-8, as patterns, and what they are."""
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
            check_is_text(head, str(path))
            if head.startswith(codecs.BOM_UTF8):
                content.read(len(codecs.BOM_UTF8))
        yield content


def unpacked(file: io.BufferedReader) -> io.BufferedReader:
    """`file`, or its unpacked content; all of these classes have the methods of a reader."""
    magic = file.peek(10)
    content: object = file
    if re.match(GZIP, magic):
        content = gzip.GzipFile(fileobj=file)
    elif re.match(ZSTD, magic) or re.match(ZSTD_SKIPPED, magic):
        content = ZstdFile(file)
    elif re.match(XZ, magic):
        content = lzma.LZMAFile(file)  # noqa: SIM115 — the caller closes it
    elif re.match(BZIP2, magic):
        content = bz2.BZ2File(file)
    return cast("io.BufferedReader", content)


def check_is_text(head: bytes, name: str) -> None:
    """Make sure that what begins with `head` is text whose lines can be told apart.

    Raises:
        DataError: it is something else; the error says what.
    """
    for pattern, kind in KINDS:
        if re.match(pattern, head):
            raise DataError(f"{name}: {kind.format(shlex.quote(name))}")
    if len(head) >= MIN_BYTES and head.count(0) > MAX_NULS * len(head):
        raise DataError(f"{name}: not text in UTF-8: it is full of NUL bytes, as UTF-16 is")
    lone_returns = len(re.findall(rb"\r(?![\r\n]|$)", head))
    if lone_returns > RETURNS_PER_LINE * head.count(b"\n"):
        raise DataError(
            f"{name}: its lines end in CR alone, as on old Macs; convert it: tr '\\r' '\\n' < "
            f"{name} > NEW"
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


def text_lines(path: Path) -> Iterator[bytes]:
    """The raw lines of a text file, line ends included.

    At most `MAX_LINE` + 1 bytes of a line are read before it is refused.
    """
    with read_errors_named(path), open_text(path) as content:
        pieces = iter(functools.partial(content.readline, MAX_LINE + 1), b"")
        for number, line in enumerate(pieces, start=1):
            if len(line) > MAX_LINE:
                raise DataError(
                    f"{path}: line {number}: longer than {MAX_LINE:,} bytes; expected a "
                    "sentence a line"
                )
            yield line


# Columns

ENDINGS = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".tmx": "xml",
    ".xlf": "xml",
    ".xliff": "xml",
}
QUOTED_LINES = 10_000
"""Lines from which is told whether a table has its cells in quotes."""
DELIMITER_LINES = 50
"""Lines from which is told what separates the cells of a .csv file."""
MOSTLY = 0.9
"""Share of cells in quotes from which on all are."""
MAX_QUOTATION = 80
"""Characters of a file that an error shows."""
Format = Literal["tsv", "csv", "json", "xml"]


def has_columns(path: Path) -> bool:
    """Whether a file's name says that it has columns."""
    return _ending(path) in ENDINGS


def is_named_json(path: Path) -> bool:
    """Whether a file's name says that it has a JSON object a line."""
    return ENDINGS.get(_ending(path)) == "json"


def is_markup(path: Path) -> bool:
    """Whether a file's name says that it is a translation memory or a translators' file."""
    return ENDINGS.get(_ending(path)) == "xml"


def _ending(path: Path) -> str:
    name = re.sub(r"\.(gz|zst|xz|bz2)$", "", path.name.lower())
    return Path(name).suffix


def format_of(path: Path) -> Format:
    """How a file of columns is written, by its name, or else by its first line.

    Raises:
        DataError: it has no columns.
    """
    if _ending(path) in ENDINGS:
        return cast("Format", ENDINGS[_ending(path)])
    first = next(text_lines(path), b"").lstrip()
    if first.startswith(b"{"):
        return "json"
    if b"\t" in first:
        return "tsv"
    raise DataError(
        f"{path}: no columns: its first line has no tab, and is no JSON object: {shown(first)}"
    )


def column_of(path: Path, column: Column) -> Iterator[bytes]:
    """The texts of a column, by its number from 1, its name in the first line, or its JSON key."""
    if format_of(path) == "json":
        yield from _values(path, str(column))
        return
    rows = enumerate(rows_of(path), 1)
    if isinstance(column, str):
        _, head = next(rows, (0, []))
        names = [normalize(decode_line(name)) for name in head]
        if column not in names:
            raise DataError(
                f"{path}: no column is called {column!r}; its first line: {', '.join(names):.80}"
            )
        column = names.index(column) + 1
    for number, cells in rows:
        if any(cells) and len(cells) < column:
            raise DataError(
                f"{path}: line {number}: expected at least {column} columns, found {len(cells)}"
            )
        yield cells[column - 1] if any(cells) else b""


def rows_of(path: Path) -> Iterator[list[bytes]]:
    """The cells of each row of a .tsv or .csv file; of quoted ones, what the quotes hold."""
    if format_of(path) == "csv":
        yield from _csv_rows(path)
        return
    has_quotes = has_quoted_cells(path)
    for line in text_lines(path):
        cells = strip_line_end(line).split(b"\t")
        yield [_unquoted(cell) for cell in cells] if has_quotes else cells


def _csv_rows(path: Path) -> Iterator[list[bytes]]:
    """The rows of a .csv file. Line ends inside of a cell become spaces."""
    csv.field_size_limit(MAX_LINE)
    lines = (line.decode("utf-8", "surrogateescape") for line in text_lines(path))
    try:
        for row in csv.reader(lines, delimiter=delimiter_of(path), skipinitialspace=True):
            yield [" ".join(cell.splitlines()).encode("utf-8", "surrogateescape") for cell in row]
    except csv.Error as error:
        raise DataError(f"{path}: not a table ({error})") from error


def delimiter_of(path: Path) -> str:
    """What separates the cells of a .csv or .tsv file."""
    if format_of(path) == "tsv":
        return "\t"
    head = [line.decode(errors="replace") for line in islice(text_lines(path), DELIMITER_LINES)]
    return max("\t;,", key=lambda mark: _num_like_the_first(head, mark))


def translate_table(
    path: Path,
    column: Column,
    *,
    write: Callable[[bytes], None],
    translate: Callable[[list[str]], list[str]],
    name: str,
    rows_together: int,
) -> None:
    """Write the table with the translations of `column` in one more column, called `name`.

    Raises:
        DataError: it cannot be read, or has no such column.
    """
    if format_of(path) not in ("tsv", "csv"):
        raise DataError(f"{path}: not a table; a column is translated of a .csv or .tsv file")
    delimiter = delimiter_of(path)
    is_plain = format_of(path) == "tsv" and not has_quoted_cells(path)
    rows = rows_of(path)
    texts = column_of(path, column)
    if isinstance(column, str) or header_of(path):
        head = next(rows, [])
        if not isinstance(column, str):
            next(texts, None)
        write(_table_row([*head, name.encode()], delimiter, is_plain=is_plain))
    for portion in iter(lambda: list(islice(rows, rows_together)), []):
        sources = [decode_line(text) for text in islice(texts, len(portion))]
        for cells, translation in zip(portion, translate(sources), strict=True):
            write(_table_row([*cells, translation.encode()], delimiter, is_plain=is_plain))


def _table_row(cells: list[bytes], delimiter: str, *, is_plain: bool) -> bytes:
    """A line of a table; plain cells stand as they are, others in quotes where they need them."""
    if is_plain:
        return delimiter.encode().join(cells) + b"\n"
    line = io.StringIO()
    decoded = [cell.decode("utf-8", "surrogateescape") for cell in cells]
    csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(decoded)
    return line.getvalue().encode("utf-8", "surrogateescape")


def _num_like_the_first(lines: list[str], delimiter: str) -> int:
    """Rows with as many cells as the first, if it has several: a table's delimiter has most."""
    rows = list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))
    width = len(rows[0]) if rows else 0
    return sum(len(row) == width for row in rows) if width > 1 else 0


def has_quoted_cells(path: Path) -> bool:
    """Whether a .tsv file quotes cells, as Excel does where they have a comma, a quote or a tab.

    Then every cell with a quote in it stands in quotes, with its own quotes doubled.
    """
    num_cells = 0
    num_quoted = 0
    has_reason = False
    for line in islice(text_lines(path), QUOTED_LINES):
        for cell in strip_line_end(line).split(b"\t"):
            num_cells += 1
            if b'"' not in cell:
                continue
            inside = _unquoted(cell)
            if inside == cell:
                return False
            num_quoted += 1
            has_reason = has_reason or any(mark in inside for mark in (b",", b";", b'"'))
    return has_reason or num_quoted > MOSTLY * num_cells


def _unquoted(cell: bytes) -> bytes:
    """What the quotes of a cell hold; the cell as it is if it is not quoted."""
    inside = cell[1:-1]
    is_quoted = len(cell) > 1 and cell.startswith(b'"') and cell.endswith(b'"')
    if not is_quoted or b'"' in inside.replace(b'""', b""):
        return cell
    return inside.replace(b'""', b'"')


def header_of(path: Path) -> list[str]:
    """The cells of a table's first line if they look like names of columns, else none.

    Names are short and without a full stop, where hardly any line below has such cells.
    """
    if format_of(path) in ("json", "xml"):
        return []
    first: list[str] = []
    num_rows = 0
    num_like_names = 0
    for row in islice(rows_of(path), QUOTED_LINES):
        cells = [normalize(decode_line(cell)) for cell in row]
        if num_rows == 0:
            first = cells
            if not _looks_like_names(first):
                return []
        num_rows += 1
        num_like_names += _looks_like_names(cells)
    return first if num_like_names <= 1 + 0.02 * num_rows else []


def _looks_like_names(cells: list[str]) -> bool:
    def is_name(cell: str) -> bool:
        return 0 < len(cell.split()) <= 2 and cell[-1] not in ".!?"

    return len(cells) > 1 and all(is_name(cell) for cell in cells)


def _values(path: Path, key: str) -> Iterator[bytes]:
    """The texts under `key`, such as `translation.de`, of a file with a JSON object a line."""
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            yield b""
            continue
        if number == 1 and line.lstrip().startswith(b"["):
            raise DataError(
                f"{path}: a JSON array; expected a JSON object a line: jq -c '.[]' {path} > "
                "NEW.jsonl"
            )
        try:
            found = record = json.loads(line)
            for part in key.split("."):
                found = found[part]
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: line {number}: not JSON ({error})") from error
        except (LookupError, TypeError):
            keys = ", ".join(_keys_of(record)) if isinstance(record, dict) else "no object"
            raise DataError(
                f"{path}: line {number}: no key {key!r}; it has {keys:.80}; name two of them with "
                "--columns"
            ) from None
        if not isinstance(found, str):
            raise DataError(f"{path}: line {number}: what is under the key {key!r} is no text")
        yield " ".join(found.split("\n")).encode(errors="surrogatepass")


def _keys_of(record: dict[str, object], *, prefix: str = "") -> Iterator[str]:
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _keys_of(value, prefix=f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def shown(raw: bytes) -> str:
    """The beginning of a line, for an error."""
    return repr(decode_line(raw)[:MAX_QUOTATION])
