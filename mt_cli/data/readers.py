"""Corpora in files of columns, keys or languages: tables, JSON, Parquet, TMX."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

from mt_cli.config.schema import Column
from mt_cli.data.files import (
    MAX_LINE,
    kind_of,
    open_bytes,
    open_text,
    read_errors_named,
    read_text,
    text_lines,
)
from mt_cli.errors import DataError, ResourceError
from mt_cli.text.language import base_language
from mt_cli.text.normalize import decode_line, normalize, strip_line_end

QUOTED_LINES = 10_000
"""Lines from which is told whether a table has its cells in quotes."""
DELIMITER_LINES = 50
"""Lines from which is told what separates the cells of a .csv file."""
MOSTLY = 0.9
"""Share of cells in quotes from which on all are."""


SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n?", re.IGNORECASE)
"""The first line in which Excel may name what separates the cells of a .csv file."""


def cells_of(path: Path, column: Column) -> Iterator[bytes]:
    """The cells of a column, by its number from 1, or by its name in the first line.

    Raises:
        DataError: the file cannot be read, or has no such column.
    """
    rows = rows_of(path)
    if isinstance(column, str):
        _, head = next(rows, (0, []))
        column = _number_of(column, head, path)
    for number, cells in rows:
        if not any(cells):
            yield b""
        elif len(cells) < column:
            raise DataError(
                f"{path}: line {number}: expected at least {column} columns, found {len(cells)}"
            )
        else:
            yield b" ".join(cells[column - 1].splitlines())  # line ends within become spaces


def _number_of(column: str, head: list[bytes], path: Path) -> int:
    names = [normalize(decode_line(name)) for name in head]
    if column not in names:
        raise DataError(
            f"{path}: no column is called {column!r}; its first line: {', '.join(names):.80}"
        )
    return names.index(column) + 1


def rows_of(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The cells of each row of a .tsv or .csv file, and the number of its first line, from 1.

    Quotes around cells are taken off. Rows are as wide as the first, or empty.

    Raises:
        DataError: the file cannot be read, or is no such table.
    """
    width = 0
    for number, cells in _csv_rows(path) if kind_of(path) == "csv" else _tsv_rows(path):
        if any(cells):
            width = width or len(cells)
        if any(cells) and len(cells) != width:
            raise DataError(
                f"{path}: line {number}: {len(cells)} cells, but the rows before have {width}; "
                "put quotes around a cell that holds the separator, or correct the row"
            )
        yield number, cells


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    has_quotes = has_quoted_cells(path)
    for number, line in enumerate(text_lines(path), 1):
        cells = strip_line_end(line).split(b"\t")
        yield number, [_unquoted(cell) for cell in cells] if has_quotes else cells


def _csv_rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    delimiter = delimiter_of(path)
    read: list[str] = []  # the lines of a row
    number = 1

    def lines() -> Iterator[str]:
        for i, line in enumerate(text_lines(path)):
            text = line.decode("utf-8", "surrogateescape")
            if i > 0 or not SEPARATOR_LINE.fullmatch(text):
                read.append(text)
                yield text

    def parsed(lines: Iterable[str], *, is_strict: bool) -> Iterator[list[str]]:
        try:
            yield from _parsed(lines, delimiter, is_strict=is_strict)
        except csv.Error as error:
            raise DataError(
                f"{path}: line {number}: its cells cannot be told apart ({error}); within quotes, "
                'a quote has to be doubled, "" and not \\"'
            ) from error

    number += _has_separator_line(path)
    for cells in parsed(lines(), is_strict=False):
        row = "".join(read)
        if '"' in row:  # one that nothing closes has swallowed what follows it
            closed = re.sub(rf'"[ \t]+(?=[{delimiter}\r\n]|$)', '"', row)  # space is harmless
            for _ in parsed(io.StringIO(closed, newline=""), is_strict=True):
                pass
        yield number, [cell.encode("utf-8", "surrogateescape") for cell in cells]
        number += len(read)
        read.clear()


def _has_separator_line(path: Path) -> bool:
    first = next(text_lines(path), b"")
    return SEPARATOR_LINE.fullmatch(first.decode(errors="replace")) is not None


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
    """What separates the cells of a .csv or .tsv file."""
    if kind_of(path) == "tsv":
        return "\t"
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

    Names are short words without a full stop, where hardly any line below has such cells.
    """
    if kind_of(path) not in ("tsv", "csv"):
        return []
    first: list[str] = []
    num_rows = 0
    num_like_names = 0
    for _, row in islice(rows_of(path), QUOTED_LINES):
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
        is_short = 0 < len(cell.split()) <= 2
        return is_short and cell[-1] not in ".!?" and any(map(str.isalpha, cell))

    return len(cells) > 1 and all(is_name(cell) for cell in cells)


HEAD_BYTES = 1 << 12
"""In which an array of JSON begins."""
READ_BYTES = 1 << 20
"""Of a Parquet file, at a time."""
ROWS_TOGETHER = 4096


def values_of(path: Path, key: str) -> Iterator[bytes]:
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
    with read_errors_named(path), open_text(path) as content:
        is_array = content.read(HEAD_BYTES).lstrip().startswith(b"[")
    if is_array:
        for number, record in enumerate(_json_of(read_text(path), str(path)), 1):
            yield f"record {number}", record
        return
    for number, line in enumerate(text_lines(path), 1):
        place = f"line {number}"
        yield place, _json_of(line, f"{path}: {place}") if line.strip() else None


def _json_of(text: bytes, where: str) -> list[object]:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error})") from error


def _keys_of(record: dict[str, object], *, prefix: str = "") -> Iterator[str]:
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _keys_of(value, prefix=f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


# Parquet


def _parquet_values(path: Path, key: str) -> Iterator[str]:
    """The texts of a column."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ResourceError(
            f"{path}: reading it needs a package that cannot be imported ({error}); run: "
            "pip install 'mt_cli[parquet]'"
        ) from error
    try:
        with read_errors_named(path), path.open("rb") as content:
            # Read in pieces, and not a column of a group of rows at once.
            file = pyarrow.parquet.ParquetFile(content, buffer_size=READ_BYTES, pre_buffer=False)
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
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from error


def _no_key(where: str, key: str, keys: Iterable[str]) -> DataError:
    return DataError(
        f"{where}: no key {key!r}; it has {', '.join(keys):.80}; name two of them with --columns"
    )


HIDDEN = ("bpt", "ept", "it", "ph", "ut")
"""Elements of a text whose content is formatting."""
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
Texts = dict[str, str]
"""The text of a unit in each of its languages, the source's first where the file names it."""


def texts_of(path: Path, column: str) -> Iterator[bytes]:
    """The texts of a file in the language `column`, or of the side `src` or `tgt`.

    A unit without such a text gives an empty one. Where there is none in `pt-PT`, it is that in
    `pt` or `pt-BR`.

    Raises:
        DataError: it cannot be read.
    """
    for texts in units_of(path):
        yield _text(texts, column).encode()


def languages_of(path: Path) -> list[str]:
    """The languages of the first unit, the source's first.

    Raises:
        DataError: the file cannot be read.
    """
    return list(next(units_of(path), {}))


def units_of(path: Path) -> Iterator[Texts]:
    """The units of a file.

    Raises:
        DataError: it cannot be read as XML.
    """
    src_lang = ""
    body = None
    try:
        with open_bytes(path) as content:
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
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"{path}: cannot be read as XML: {error}") from error


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
