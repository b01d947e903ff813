"""Spreadsheets: the review table that `translate -o review.csv` writes, and tables for `-i`."""

import csv
import io
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from pathlib import Path

from mt_cli.cli.tables import safe_cell
from mt_cli.data.tables import column_number, table_rows
from mt_cli.errors import DataError, UsageError
from mt_cli.text.normalize import decode_line, is_valid_utf8
from mt_cli.translation.result import WARNINGS, Translation
from mt_cli.translation.streams import LINES_TOGETHER

log = logging.getLogger(__name__)

DELIMITERS = {".csv": ",", ".tsv": "\t"}
COLUMNS = ("source", "translation", "mean_log_prob", "doubtful_words", *WARNINGS)
"""Columns of each translation, after the line number and the other columns of the source table."""


@dataclass(frozen=True)
class SourceTable:
    """A .csv or .tsv file with the sources in one column."""

    path: Path
    number: int
    """Number of that column, from 1."""
    has_names: bool
    """Whether the first non-empty row has the column names."""
    head: Sequence[str]
    """Names of the other columns."""

    @classmethod
    def open(cls, path: Path, column: str) -> "SourceTable":
        """Open the table in `path`; `column` is a name in its first row, or a number.

        Raises:
            UsageError: the file is not a table. DataError: the file has no such column, or is
                damaged.
        """
        if path.suffix.lower() not in DELIMITERS:
            raise UsageError(f"{path}: --columns works only with .csv and .tsv files")
        head = next((cells for _, cells in table_rows(path) if any(cells)), [])
        names = list(map(decode_line, head))
        has_names = column in names or not column.isdecimal()
        number = column_number(column, head, path) if has_names else int(column)
        if not 1 <= number <= len(head):
            raise DataError(f"{path}: has no column {number}, only {len(head)} columns")
        if not has_names:
            names = [f"column {i}" for i in range(1, len(head) + 1)]
        return cls(path, number, has_names, names[: number - 1] + names[number:])

    def portions(self) -> Iterator[tuple[list[str], list[list[str]]]]:
        """Portions of sources, with the other cells of their rows."""
        rows = table_rows(self.path)
        if self.has_names:
            rows = dropwhile(lambda row: not any(row[1]), rows)
            next(rows)
        num_invalid = 0
        while portion := list(islice(rows, LINES_TOGETHER)):
            sources = []
            others = []
            for _, cells in portion:
                num_invalid += not all(map(is_valid_utf8, cells))
                texts = [" ".join(decode_line(cell).splitlines()) for cell in cells]
                if not any(texts):
                    texts = [""] * (len(self.head) + 1)
                sources.append(texts[self.number - 1])
                others.append(texts[: self.number - 1] + texts[self.number :])
            yield sources, others
        if num_invalid:
            log.warning(
                "%s: %d rows are not valid UTF-8; skipped the invalid bytes",
                self.path,
                num_invalid,
            )


class Sheet:
    """Formats results as rows of a .csv or .tsv file."""

    def __init__(self, path: Path, others: Sequence[str]) -> None:
        """The ending of `path` decides the delimiter; `others` are the source table's columns."""
        self._file = io.StringIO()
        self._writer = csv.writer(
            self._file, delimiter=DELIMITERS[path.suffix.lower()], lineterminator="\n"
        )
        self._file.write("\ufeff")  # the BOM tells spreadsheets that this is UTF-8
        self._writer.writerow(["line", *map(safe_cell, others), *COLUMNS])
        self._num_lines = 0

    def rows(
        self, translations: Sequence[Sequence[Translation]], further_cells: Sequence[Sequence[str]]
    ) -> str:
        """The rows of the next lines, with the source table's other cells; the header first."""
        for of_line, cells in zip(translations, further_cells, strict=True):
            self._num_lines += 1
            for translation in of_line:
                self._writer.writerow(
                    [self._num_lines, *map(safe_cell, cells), *_cells(translation)]
                )
        text = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return text


def _cells(result: Translation) -> list[str]:
    """A cell for each of `COLUMNS`."""
    facts = []
    for value in result.facts.values():
        if isinstance(value, tuple):
            facts.append(", ".join(value))
        else:
            facts.append("yes" if value is True else str(value or ""))
    texts = [result.source, result.text]
    doubtful = " ".join(result.doubtful_words)
    return [
        *map(safe_cell, texts),
        f"{result.mean_log_prob:.4f}",
        *map(safe_cell, [doubtful, *facts]),
    ]
