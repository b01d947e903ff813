"""Tables: files of tab-separated or comma-separated cells, as spreadsheets write them."""

import csv
import io
import logging
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from mt_cli.config.schema import Column
from mt_cli.data.files import MAX_LINE, kind_of, open_bytes, text_lines
from mt_cli.errors import DataError
from mt_cli.text.normalize import decode_line, normalize, strip_line_end

log = logging.getLogger(__name__)
QUOTED_LINES = 10_000
"""Lines from which is told whether a table has its cells in quotes."""
DELIMITER_LINES = 50
"""Lines from which is told what separates the cells of a .csv file."""
MOSTLY = 0.9
"""Share of cells in quotes from which on all are."""


class Row(NamedTuple):
    """A row of a table."""

    cells: list[bytes]
    raw: bytes
    """Its line as it stands in the file, or its lines."""


NO_ROW = Row([], b"")


def cells_of(path: Path, column: Column) -> Iterator[bytes]:
    """The cells of a column, by its number from 1, or by its name in the first line.

    Raises:
        DataError: the file cannot be read, or has no such column.
    """
    rows = enumerate(rows_of(path), 1)
    if isinstance(column, str):
        _, head = next(rows, (0, NO_ROW))
        column = _number_of(column, head, path)
    for number, row in rows:
        yield _cell(row, column, f"{path}: line {number}")


def _number_of(column: str, head: Row, path: Path) -> int:
    names = [normalize(decode_line(name)) for name in head.cells]
    if column not in names:
        raise DataError(
            f"{path}: no column is called {column!r}; its first line: {', '.join(names):.80}"
        )
    return names.index(column) + 1


def _cell(row: Row, number: int, where: str) -> bytes:
    """A cell of `row`. Line ends inside of it become spaces."""
    if not any(row.cells):
        return b""
    if len(row.cells) < number:
        raise DataError(f"{where}: expected at least {number} columns, found {len(row.cells)}")
    return b" ".join(row.cells[number - 1].splitlines())


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of a .tsv or .csv file; of quoted cells, what the quotes hold.

    Raises:
        DataError: the file cannot be read, or is no table.
    """
    if kind_of(path) == "csv":
        yield from _csv_rows(path)
        return
    has_quotes = has_quoted_cells(path)
    for line in text_lines(path):
        cells = strip_line_end(line).split(b"\t")
        yield Row([_unquoted(cell) for cell in cells] if has_quotes else cells, line)


def _csv_rows(path: Path) -> Iterator[Row]:
    delimiter = delimiter_of(path)
    read: list[bytes] = []  # the lines of a row

    def lines() -> Iterator[str]:
        for line in text_lines(path):
            read.append(line)
            yield _as_str(line)

    first_line = 1
    try:
        for cells in _parsed(lines(), delimiter):
            row = Row([cell.encode("utf-8", "surrogateescape") for cell in cells], b"".join(read))
            if len(read) > 1 or row.raw.count(b'"') % 2:
                _check_quotes(row.raw, delimiter, f"{path}: line {first_line}")
            yield row
            first_line += len(read)
            read.clear()
    except csv.Error as error:
        raise DataError(
            f"{path}: line {first_line}: its cells cannot be told apart ({error})"
        ) from error


def _check_quotes(row: bytes, delimiter: str, where: str) -> None:
    """Refuse a row with a quote that nothing closes: it has swallowed the rows that follow."""
    closed = re.sub(rf'"[ \t]+(?=[{delimiter}\r\n]|$)', '"', _as_str(row))  # space is harmless
    try:
        for _ in _parsed(io.StringIO(closed, newline=""), delimiter, is_strict=True):
            pass
    except csv.Error as error:
        raise DataError(
            f"{where}: a quote that does not close its cell ({error}); within quotes, a quote has "
            "to be doubled"
        ) from error


def _as_str(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


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
    for row in islice(rows_of(path), QUOTED_LINES):
        cells = [normalize(decode_line(cell)) for cell in row.cells]
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


# Translation


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

    What it has already stays as it is, byte for byte.

    Raises:
        DataError: it cannot be read, or has no such column.
    """
    if kind_of(path) not in ("tsv", "csv"):
        raise DataError(f"{path}: not a table; a column is translated of a .csv or .tsv file")
    with open_bytes(path) as content:
        has_mark = content.peek(len(BOM_UTF8)).startswith(BOM_UTF8)
    if has_mark:
        write(BOM_UTF8)  # a spreadsheet needs it
    delimiter = delimiter_of(path)
    is_plain = kind_of(path) == "tsv" and not has_quoted_cells(path)
    width = len(next(rows_of(path), NO_ROW).cells)
    longer = partial(_longer, width=width, delimiter=delimiter, is_plain=is_plain)
    rows = enumerate(rows_of(path), 1)
    if isinstance(column, str) or header_of(path):
        _, head = next(rows, (0, NO_ROW))
        if isinstance(column, str):
            column = _number_of(column, head, path)
        else:
            log.info("%s: its first line is taken for the names of its columns", path)
        write(longer(head, name))
    for portion in iter(lambda: list(islice(rows, rows_together)), []):
        texts = [_cell(row, column, f"{path}: line {number}") for number, row in portion]
        translations = translate([decode_line(text) for text in texts])
        for (_, row), translation in zip(portion, translations, strict=True):
            write(longer(row, translation))


def _longer(row: Row, text: str, *, width: int, delimiter: str, is_plain: bool) -> bytes:
    """`row` with one more cell behind `width` ones, in quotes if it needs them."""
    content = row.raw.rstrip(b"\r\n")
    if not content:
        return row.raw
    end = row.raw[len(content) :]
    content += delimiter.encode() * (width - len(row.cells))
    if not is_plain:
        cell = io.StringIO()
        csv.writer(cell, delimiter=delimiter, lineterminator="").writerow(["", text])
        return content + cell.getvalue().encode() + end
    return content + f"{delimiter}{text}".encode() + end
