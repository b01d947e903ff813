"""Tables: reading columns of .tsv and .csv files."""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from mt_cli.config.schema import Column
from mt_cli.data.text_files import MAX_LINE, kind_of, text_lines
from mt_cli.errors import DataError
from mt_cli.text.normalize import decode_line, normalize, strip_line_end

QUOTED_LINES = 10_000
"""Number of lines for detecting quoted cells in a .tsv file."""
MOSTLY = 0.9
"""Share of quoted cells from which a file counts as quoted."""
DELIMITER_LINES = 50
"""Number of lines for detecting the delimiter of a .csv file."""
SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n?", re.IGNORECASE)
"""An optional first line by which Excel sets the delimiter of a .csv file."""


def table_cells(path: Path, column: Column) -> Iterator[bytes]:
    """The cells of a column, given by its number from 1, or by its name in the first line.

    A first line that only numbers the columns is skipped.

    Raises:
        DataError: the file cannot be read, or does not have the column.
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
            raise DataError(f"{path}: line {number}: no column {column}, only {len(cells)} columns")
        else:
            yield b" ".join(cells[column - 1].splitlines())  # line ends within become spaces


def _is_numbering(cells: list[bytes]) -> bool:
    """Whether `cells` are 1, 2 … or 0, 1 …: the header of a table without column names."""
    numbers = [str(number).encode() for number in range(len(cells) + 1)]
    return len(cells) > 1 and cells in (numbers[1:], numbers[:-1])


def column_number(column: str, head: list[bytes], path: Path) -> int:
    """The number, from 1, of the column named `column` in the first row of `path`.

    Raises:
        DataError: the column does not exist.
    """
    names = [normalize(decode_line(name)) for name in head]
    if column not in names:
        raise DataError(f"{path}: no column {column!r}; the first line has {', '.join(names):.80}")
    return names.index(column) + 1


def table_rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The cells of each row of a .tsv or .csv file, with the number of its first line, from 1.

    Quotes around cells are removed. Each row must be empty or as wide as the first one.

    Raises:
        DataError: the file cannot be read, or is not such a table.
    """
    width = 0
    for number, cells in _csv_rows(path) if kind_of(path) == "csv" else _tsv_rows(path):
        if any(cells):
            width = width or len(cells)
        if any(cells) and len(cells) != width:
            raise DataError(
                f"{path}: line {number}: {len(cells)} cells, but the first row has {width}; quote "
                "cells that contain the separator"
            )
        yield number, cells


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    has_quotes = has_quoted_cells(path)
    for number, line in enumerate(text_lines(path), 1):
        cells = strip_line_end(line).split(b"\t")
        yield number, [_unquoted(cell) for cell in cells] if has_quotes else cells


def has_quoted_cells(path: Path) -> bool:
    """Whether a .tsv file quotes cells, as Excel does for cells with a comma, a quote or a tab.

    In such a file, every cell that contains a quote is quoted, with its own quotes doubled.
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
    """The cell without quotes; unchanged if it is not quoted."""
    inside = cell[1:-1]
    is_quoted = len(cell) > 1 and cell.startswith(b'"') and cell.endswith(b'"')
    if not is_quoted or b'"' in inside.replace(b'""', b""):
        return cell
    return inside.replace(b'""', b'"')


def _csv_rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    delimiter = delimiter_of(path)
    read: list[str] = []  # the lines of the current row
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
            if '"' in row:  # an unclosed quote would have swallowed the following lines
                closed = re.sub(rf'"[ \t]+(?=[{delimiter}\r\n]|$)', '"', row)  # space is harmless
                list(_parsed(io.StringIO(closed, newline=""), delimiter, is_strict=True))
            yield number, [cell.encode("utf-8", "surrogateescape") for cell in cells]
            number += len(read)
            read.clear()
    except csv.Error as error:
        raise DataError(
            f"{path}: line {number}: {error}; double any quotes within quotes"
        ) from error


def _parsed(
    lines: Iterable[str], delimiter: str, *, is_strict: bool = False
) -> Iterator[list[str]]:
    """The cells of each row; a row takes several lines if a quoted cell has line ends.

    Raises:
        csv.Error: a cell is too long; with `is_strict`, also if a quote closes inside a cell.
    """
    csv.field_size_limit(MAX_LINE)
    yield from csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=is_strict)


def delimiter_of(path: Path) -> str:
    """Detect the delimiter of a .csv file."""
    head = [line.decode(errors="replace") for line in islice(text_lines(path), DELIMITER_LINES)]
    if head and (named := SEPARATOR_LINE.fullmatch(head[0])):
        return named[1]

    def num_like_the_first(delimiter: str) -> int:
        """Number of rows as wide as the first, if that has several cells."""
        try:
            rows = list(_parsed(head, delimiter))
        except csv.Error:
            return 0
        width = len(rows[0]) if rows else 0
        return sum(len(row) == width for row in rows) if width > 1 else 0

    likeliest = max("\t;,", key=num_like_the_first)
    return likeliest if num_like_the_first(likeliest) else ","
