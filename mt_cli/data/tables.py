"""Tables: files of tab-separated or comma-separated cells, as spreadsheets write them."""

import csv
import io
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from mt_cli.config.schema import Column
from mt_cli.data.files import MAX_LINE, kind_of, text_lines
from mt_cli.errors import DataError
from mt_cli.text.normalize import decode_line, normalize, strip_line_end

QUOTED_LINES = 10_000
"""Lines from which is told whether a table has its cells in quotes."""
DELIMITER_LINES = 50
"""Lines from which is told what separates the cells of a .csv file."""
MOSTLY = 0.9
"""Share of cells in quotes from which on all are."""


def cells_of(path: Path, column: Column) -> Iterator[bytes]:
    """The cells of a column, by its number from 1, or by its name in the first line.

    Raises:
        DataError: the file cannot be read, or has no such column.
    """
    rows = enumerate(rows_of(path), 1)
    if isinstance(column, str):
        _, head = next(rows, (0, []))
        column = _number_of(column, head, path)
    for number, cells in rows:
        yield _cell(cells, column, f"{path}: line {number}")


def _number_of(column: str, head: list[bytes], path: Path) -> int:
    names = [normalize(decode_line(name)) for name in head]
    if column not in names:
        raise DataError(
            f"{path}: no column is called {column!r}; its first line: {', '.join(names):.80}"
        )
    return names.index(column) + 1


def _cell(cells: list[bytes], number: int, where: str) -> bytes:
    if not any(cells):
        return b""
    if len(cells) < number:
        raise DataError(f"{where}: expected at least {number} columns, found {len(cells)}")
    return cells[number - 1]


def rows_of(path: Path) -> Iterator[list[bytes]]:
    """The cells of each row of a .tsv or .csv file; of quoted ones, what the quotes hold."""
    if kind_of(path) == "csv":
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
    if kind_of(path) == "tsv":
        return "\t"
    head = [line.decode(errors="replace") for line in islice(text_lines(path), DELIMITER_LINES)]
    return max("\t;,", key=lambda mark: _num_like_the_first(head, mark))


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
    if kind_of(path) not in ("tsv", "csv"):
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

    Raises:
        DataError: it cannot be read, or has no such column.
    """
    if kind_of(path) not in ("tsv", "csv"):
        raise DataError(f"{path}: not a table; a column is translated of a .csv or .tsv file")
    delimiter = delimiter_of(path)
    is_plain = kind_of(path) == "tsv" and not has_quoted_cells(path)
    rows = enumerate(rows_of(path), 1)
    if isinstance(column, str) or header_of(path):
        _, head = next(rows, (0, []))
        if isinstance(column, str):
            column = _number_of(column, head, path)
        write(_table_row([*head, name.encode()], delimiter, is_plain=is_plain))
    for portion in iter(lambda: list(islice(rows, rows_together)), []):
        texts = [_cell(cells, column, f"{path}: line {number}") for number, cells in portion]
        translations = translate([decode_line(text) for text in texts])
        for (_, cells), translation in zip(portion, translations, strict=True):
            write(_table_row([*cells, translation.encode()], delimiter, is_plain=is_plain))


def _table_row(cells: list[bytes], delimiter: str, *, is_plain: bool) -> bytes:
    """A line of a table; plain cells stand as they are, others in quotes where they need them."""
    if is_plain:
        return delimiter.encode().join(cells) + b"\n"
    line = io.StringIO()
    decoded = [cell.decode("utf-8", "surrogateescape") for cell in cells]
    csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(decoded)
    return line.getvalue().encode("utf-8", "surrogateescape")
