"""Text files as people have them: lines, packed or not; tables, JSON, Parquet and TMX."""

import codecs
import csv
import gzip
import io
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, cast
from xml.etree import ElementTree

from mt_cli.config.schema import Column
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import MAX_TEXT_BYTES, damage_named
from mt_cli.machine.process import import_extra
from mt_cli.text.language import base_language
from mt_cli.text.normalize import (
    decode_line,
    is_valid_utf8,
    normalize,
    split_lines,
    strip_line_end,
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
            f"{path}: its name says {kind}, and here each line is a text; write the texts, one a "
            "line, to a file such as texts.txt; translate takes a column with --columns"
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


QUOTED_LINES = 10_000
"""Lines from which is told whether a .tsv file has its cells in quotes."""
MOSTLY = 0.9
"""Share of cells in quotes from which on all are."""
DELIMITER_LINES = 50
"""Lines from which is told what separates the cells of a .csv file."""
SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n?", re.IGNORECASE)
"""The first line in which Excel may name what separates the cells of a .csv file."""


def table_cells(path: Path, column: Column) -> Iterator[bytes]:
    """The cells of a column, by its number from 1, or by its name in the first line.

    A first line that only numbers the columns, as programs write it, is no row either.

    Raises:
        DataError: the file cannot be read, or has no such column.
    """
    rows = table_rows(path)
    if isinstance(column, str):
        _, head = next(rows, (0, []))
        column = column_number(column, head, path)
    for number, cells in rows:
        if number == 1 and _is_numbering(cells):
            continue
        if not any(cells):
            yield b""
        elif len(cells) < column:
            raise DataError(f"{path}: line {number}: no column {column}, only {len(cells)}")
        else:
            yield b" ".join(cells[column - 1].splitlines())  # line ends within become spaces


def _is_numbering(cells: list[bytes]) -> bool:
    """Whether `cells` are 1, 2 … or 0, 1 …, the head of a table whose columns have no names."""
    numbers = [str(number).encode() for number in range(len(cells) + 1)]
    return len(cells) > 1 and cells in (numbers[1:], numbers[:-1])


def column_number(column: str, head: list[bytes], path: Path) -> int:
    """The place, from 1, of the name `column` in the first row of `path`.

    Raises:
        DataError: it is not there.
    """
    names = [normalize(decode_line(name)) for name in head]
    if column not in names:
        raise DataError(f"{path}: no column {column!r}; its first line: {', '.join(names):.80}")
    return names.index(column) + 1


def table_rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The cells of each row of a .tsv or .csv file, and the number of its first line, from 1.

    Quotes around cells of a .csv file are taken off. Rows are as wide as the first, or empty.

    Raises:
        DataError: the file cannot be read, or is no such table.
    """
    width = 0
    for number, cells in _csv_rows(path) if kind_of(path) == "csv" else _tsv_rows(path):
        if any(cells):
            width = width or len(cells)
        if any(cells) and len(cells) != width:
            raise DataError(
                f"{path}: line {number}: {len(cells)} cells, not {width}; quote the separator"
            )
        yield number, cells


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    has_quotes = has_quoted_cells(path)
    for number, line in enumerate(text_lines(path), 1):
        cells = strip_line_end(line).split(b"\t")
        yield number, [_unquoted(cell) for cell in cells] if has_quotes else cells


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


def _csv_rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    delimiter = delimiter_of(path)
    read: list[str] = []  # the lines of a row
    number = 1

    def lines() -> Iterator[str]:
        nonlocal number
        for i, line in enumerate(text_lines(path)):
            text = line.decode("utf-8", "surrogateescape")
            if i == 0 and SEPARATOR_LINE.fullmatch(text):
                number += 1
            else:
                read.append(text)
                yield text

    try:
        for cells in _parsed(lines(), delimiter):
            row = "".join(read)
            if '"' in row:  # one that nothing closes has swallowed what follows it
                closed = re.sub(rf'"[ \t]+(?=[{delimiter}\r\n]|$)', '"', row)  # space is harmless
                list(_parsed(io.StringIO(closed, newline=""), delimiter, is_strict=True))
            yield number, [cell.encode("utf-8", "surrogateescape") for cell in cells]
            number += len(read)
            read.clear()
    except csv.Error as error:
        raise DataError(
            f"{path}: line {number}: {error}; a quote within quotes is doubled"
        ) from error


def _parsed(
    lines: Iterable[str], delimiter: str, *, is_strict: bool = False
) -> Iterator[list[str]]:
    """The cells of each row, which takes several lines where a quoted cell has line ends.

    Raises:
        csv.Error: a cell is too long; or, if it `is_strict`, a quote closes where no cell ends.
    """
    csv.field_size_limit(MAX_LINE)
    yield from csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=is_strict)


def delimiter_of(path: Path) -> str:
    """What separates the cells of a .csv file."""
    head = [line.decode(errors="replace") for line in islice(text_lines(path), DELIMITER_LINES)]
    if head and (named := SEPARATOR_LINE.fullmatch(head[0])):
        return named[1]

    def num_like_the_first(delimiter: str) -> int:
        """Rows with as many cells as the first, if it has several: a table's delimiter has most."""
        try:
            rows = list(_parsed(head, delimiter))
        except csv.Error:
            return 0
        width = len(rows[0]) if rows else 0
        return sum(len(row) == width for row in rows) if width > 1 else 0

    likeliest = max("\t;,", key=num_like_the_first)
    return likeliest if num_like_the_first(likeliest) else ","


READ_BYTES = 1 << 20
"""Of a Parquet file, at a time."""
ROWS_TOGETHER = 4096


def record_texts(path: Path, key: str) -> Iterator[bytes]:
    """The text under `key` of each record; empty where a record is.

    Raises:
        DataError: the file cannot be read, or has no such key.
        ResourceError: it needs a package that is not installed.
    """
    values = _parquet_values if kind_of(path) == "parquet" else _json_values
    for text in values(path, key):
        yield " ".join(text.split("\n")).encode(errors="surrogatepass")


# JSON


def _json_values(path: Path, key: str) -> Iterator[str]:
    for place, record in _json_records(path):
        if record is None:
            yield ""
            continue
        try:
            found = _value(record, key)
        except (LookupError, TypeError):
            keys = _keys_of(record) if isinstance(record, dict) else ["no object"]
            raise _no_key(f"{path}: {place}", key, keys) from None
        if not isinstance(found, str | None):
            raise DataError(f"{path}: {place}: what is under the key {key!r} is no text")
        yield found or ""


def _value(record: object, key: str) -> object:
    """What is under `key`, or under the keys that its dots separate."""
    if isinstance(record, dict) and key in record:
        return record[key]
    found = record
    for part in key.split("."):
        found = found[part]  # type: ignore[index]
    return found


def _json_records(path: Path) -> Iterator[tuple[str, object]]:
    """The records of a file, an object a line or an array of them, and where each stands."""
    with open_text(path) as content:
        is_array = content.read(MAX_LINE).lstrip().startswith(b"[")
    if is_array:
        for number, record in enumerate(_json_of(read_text(path), str(path)), 1):
            yield f"record {number}", record
        return
    for number, line in enumerate(text_lines(path), 1):
        place = f"line {number}"
        yield place, _json_of(line, f"{path}: {place}") if line.strip() else None


def _json_of(text: bytes, where: str) -> list[object]:
    with damage_named(where, "JSON", ValueError, RecursionError):
        return json.loads(text)


def _keys_of(record: dict[str, object], *, prefix: str = "") -> Iterator[str]:
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _keys_of(value, prefix=f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


# Parquet


def _parquet_values(path: Path, key: str) -> Iterator[str]:
    """The texts of a column."""
    pyarrow = import_extra("pyarrow", extra="parquet", needed_by=str(path))
    parquet = import_extra("pyarrow.parquet", extra="parquet", needed_by=str(path))
    with path.open("rb") as content, damage_named(path, "Parquet", pyarrow.ArrowException, OSError):
        # Read in pieces, and not a column of a group of rows at once.
        file = parquet.ParquetFile(content, buffer_size=READ_BYTES, pre_buffer=False)
        keys = [file.schema.column(i).path for i in range(len(file.schema))]
        if key not in keys:
            raise _no_key(str(path), key, keys)
        for rows in file.iter_batches(ROWS_TOGETHER, columns=[key]):
            column = rows.column(0)
            while pyarrow.types.is_struct(column.type):
                column = column.flatten()[0]  # null where the whole record is
            for value in column.to_pylist():
                if not isinstance(value, str | None):
                    raise DataError(f"{path}: what is under the key {key!r} is no text")
                yield value or ""


def _no_key(where: str, key: str, keys: Iterable[str]) -> DataError:
    return DataError(
        f"{where}: no key {key!r}; it has {', '.join(keys):.80}; name two of them with --columns"
    )


HIDDEN = ("bpt", "ept", "it", "ph", "ut")
"""Elements of a text whose content is formatting."""
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
Texts = dict[str, str]
"""The text of a unit in each of its languages, the source's first where the file names it."""


def tmx_texts(path: Path, column: str) -> Iterator[bytes]:
    """The texts of a file in the language `column`, or of the side `src` or `tgt`.

    A unit without such a text gives an empty one. Where there is none in `pt-PT`, it is that in
    `pt` or `pt-BR`.

    Raises:
        DataError: it cannot be read.
    """
    for texts in tmx_units(path):
        yield _text(texts, column).encode()


def tmx_languages(path: Path) -> list[str]:
    """The languages of the first unit, the source's first.

    Raises:
        DataError: the file cannot be read.
    """
    return list(next(tmx_units(path), {}))


def tmx_units(path: Path) -> Iterator[Texts]:
    """The units of a file.

    Raises:
        DataError: it cannot be read as XML.
    """
    src_lang = ""
    body = None
    with (
        open_bytes(path) as content,
        damage_named(path, "XML", ElementTree.ParseError, ValueError, LookupError),
    ):
        for event, element in ElementTree.iterparse(content, events=("start", "end")):
            name = _name(element)
            if event == "start" and name == "header":
                src_lang = element.get("srclang", "")
            elif event == "start" and name == "body":
                body = element
            elif event == "end" and name == "tu":
                yield _texts(element, src_lang)
                element.clear()
                if body is not None:
                    body.clear()  # or memory would grow with the file


def _texts(unit: ElementTree.Element, src_lang: str) -> Texts:
    texts: Texts = {}
    for variant in unit:
        lang = variant.get(XML_LANG) or variant.get("lang") or ""
        for segment in variant:
            if _name(segment) == "seg":
                texts[lang] = " ".join(_visible_text(segment).split())
    return {lang: texts[lang] for lang in sorted(texts, key=lambda lang: lang != src_lang)}


def _text(texts: Texts, column: str) -> str:
    if column in ("src", "tgt"):
        sides = list(texts.values())
        return "".join(sides[:1] if column == "src" else sides[1:2])
    of_language = [
        lang
        for lang, text in texts.items()
        if text and base_language(lang) == base_language(column)
    ]
    of_language.sort(key=lambda lang: lang.lower() != column.lower())  # its own variant first
    return texts[of_language[0]] if of_language else ""


def _visible_text(element: ElementTree.Element) -> str:
    text = element.text or ""
    for child in element:
        if _name(child) not in HIDDEN:
            text += _visible_text(child)
        text += child.tail or ""
    return text


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
