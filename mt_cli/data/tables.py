"""Tables: the columns of .tsv and .csv files."""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from mt_cli.config.schema import Column
from mt_cli.data.text_files import MAX_LINE, kind_of, text_lines
from mt_cli.errors import DataError
from mt_cli.text.normalize import (
    decode_line,
    normalize,
    strip_line_end,
)

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
                f"{path}: line {number}: {len(cells)} cells, but the first row has {width}; put "
                "cells that hold the separator in quotes"
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
