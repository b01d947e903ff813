"""Tables of results as text, Markdown, LaTeX, CSV or JSON (`--format`)."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from statistics import mean, stdev
from typing import Annotated, Literal

import typer
from tabulate import tabulate

from mt_cli.errors import UsageError
from mt_cli.machine.terminal import print_lines, print_result, table_text, visible

TableFormat = Literal["text", "markdown", "latex", "csv", "json"]
Format = Annotated[
    TableFormat,
    typer.Option("--format", help="Output format; json is the same as --json."),
]
FORMULA_BEGINS = ("=", "+", "-", "@")
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Score:
    """A number in a table."""

    value: float
    spread: float | None = None
    """Half the width of an interval, or a standard deviation."""
    p: float | None = None
    """p of the difference from the baseline's score."""
    is_marked: bool = False
    digits: int = 2

    @staticmethod
    def of(values: Sequence[float], *, is_marked: bool = False, digits: int = 2) -> "Score":
        """The mean of `values`, with their standard deviation if there are several."""
        deviation = stdev(values) if len(values) > 1 else None
        return Score(mean(values), deviation, is_marked=is_marked, digits=digits)

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ±{self.spread:.{self.digits}f}"
        return f"{self.value:.{self.digits}f}{spread}{'*' * self.is_marked}"


Cell = str | int | Score | None
"""None means unknown."""


@dataclass(frozen=True)
class Table:
    """A header and rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    signatures: Mapping[str, str] = field(default_factory=dict)
    """sacreBLEU's signatures, by metric."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Meanings of `±` and `*` in this table."""
    lefts: int = 1
    """Number of left-aligned columns, from the left."""

    def text(self) -> str:
        """The table for a terminal, at most 80 columns wide."""
        return table_text(self.head, self._texts(), lefts=self.lefts)

    def markdown(self) -> str:
        """A Markdown table, followed by a line for each signature."""
        rows = [_without_bars(row) for row in self._texts()]
        notes = [f"{name}: `{signature}`" for name, signature in self.signatures.items()]
        notes += [f"{mark}: {meaning}" for mark, meaning in self.marks.items()]
        return self._tabulated(rows, "pipe") + "".join(f"\n\n{note}" for note in notes)

    def latex(self) -> str:
        """A LaTeX tabular (needs booktabs), with the signatures in comments above it."""
        notes = [f"% {name}: {text}\n" for name, text in {**self.signatures, **self.marks}.items()]
        return "".join(notes) + self._tabulated(self._texts(), "latex_booktabs")

    def csv(self) -> str:
        """A header and rows of plain numbers; spreads, p-values and signatures are columns."""
        head: list[str] = []
        columns: list[list[object]] = []
        for name, column in zip(self.head, zip(*self.rows, strict=True), strict=True):
            head.append(name)
            columns.append([_plain(cell) for cell in column])
            scores = [cell if isinstance(cell, Score) else None for cell in column]
            spreads = [score and score.spread for score in scores]
            p_values = [score and score.p for score in scores]
            for of_column, values in ((f"{name} ±", spreads), (f"{name} p", p_values)):
                if any(value is not None for value in values):
                    head.append(of_column)
                    columns.append(list(values))
        for name, signature in self.signatures.items():
            head.append(f"{name} signature")
            columns.append([signature] * len(self.rows))
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(zip(*columns, strict=True))
        return file.getvalue().rstrip("\n")

    def _texts(self) -> list[list[str]]:
        return [list(map(_text, row)) for row in self.rows]

    def _tabulated(self, rows: Sequence[Sequence[str]], form: str) -> str:
        align = ["left"] * self.lefts + ["right"] * (len(self.head) - self.lefts)
        return tabulate(rows, self.head, tablefmt=form, colalign=align, disable_numparse=True)


def _text(cell: Cell) -> str:
    return "-" if cell is None else visible(str(cell))


def _without_bars(row: Sequence[str]) -> list[str]:
    """A row's cells with `|` escaped, which would separate cells in Markdown."""
    return [cell.replace("|", r"\|") for cell in row]


def _plain(cell: Cell) -> object:
    if isinstance(cell, Score):
        return cell.value
    return safe_cell(cell) if isinstance(cell, str) else cell


def safe_cell(text: str) -> str:
    """`text` in one line, safe for a spreadsheet cell: it is not executed as a formula."""
    text = " ".join(re.split(r"[\r\n\t]", text))
    is_formula = text.startswith(FORMULA_BEGINS) and not NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def joint_name(names: Sequence[str]) -> str:
    """All `names` in one, in shell notation: `strong-seed{1,2,3}`."""
    if len(names) == 1:
        return names[0]
    start = commonprefix(names)  # noqa: RUF071 — letters, not folders
    return f"{start}{{{','.join(name[len(start) :] for name in names)}}}"


def print_table(
    tables: Sequence[Table], text: str, document: object, *, form: TableFormat, as_json: bool
) -> None:
    """Print `tables` in the chosen form; as text, print `text` instead."""
    if as_json and form not in ("text", "json"):
        raise UsageError(f"--json contradicts --format {form}; use only one of them")
    if as_json or form in ("text", "json"):
        print_result(text, document, as_json=as_json or form == "json")
    else:
        print_lines("\n\n".join(getattr(table, form)() for table in tables))
