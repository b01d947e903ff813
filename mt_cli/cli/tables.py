"""Tables of results: as text, for a page, a paper, a spreadsheet or a program (`--format`)."""

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
    typer.Option("--format", help="Form of the results; json is what --json prints."),
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
    """That of its difference from the baseline's score."""
    is_marked: bool = False
    digits: int = 2

    @staticmethod
    def of(values: Sequence[float], *, is_marked: bool = False, digits: int = 2) -> "Score":
        """The mean of `values`; of several, with their standard deviation."""
        deviation = stdev(values) if len(values) > 1 else None
        return Score(mean(values), deviation, is_marked=is_marked, digits=digits)

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ±{self.spread:.{self.digits}f}"
        return f"{self.value:.{self.digits}f}{spread}{'*' * self.is_marked}"


Cell = str | int | Score | None
"""None is unknown."""


@dataclass(frozen=True)
class Table:
    """Rows under a head."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    signatures: Mapping[str, str] = field(default_factory=dict)
    """sacreBLEU's, by metric."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """What `±` and `*` mean here."""
    lefts: int = 1
    """Columns from the left that are words."""

    def text(self) -> str:
        """For a terminal, at most 80 columns wide."""
        return table_text(self.head, self._texts(), lefts=self.lefts)

    def markdown(self) -> str:
        """A table for GitHub and most pages, and a line for each signature."""
        rows = [_without_bars(row) for row in self._texts()]
        notes = [f"{name}: `{signature}`" for name, signature in self.signatures.items()]
        notes += [f"{mark}: {meaning}" for mark, meaning in self.marks.items()]
        return self._tabulated(rows, "pipe") + "".join(f"\n\n{note}" for note in notes)

    def latex(self) -> str:
        """A tabular for the package booktabs, under comments that hold the signatures."""
        notes = [f"% {name}: {text}\n" for name, text in {**self.signatures, **self.marks}.items()]
        return "".join(notes) + self._tabulated(self._texts(), "latex_booktabs")

    def csv(self) -> str:
        """A head and rows of plain numbers; spreads, p-values and signatures have columns."""
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
    """The cells of a row of a Markdown table, which bars would part."""
    return [cell.replace("|", r"\|") for cell in row]


def _plain(cell: Cell) -> object:
    if isinstance(cell, Score):
        return cell.value
    return safe_cell(cell) if isinstance(cell, str) else cell


def safe_cell(text: str) -> str:
    """`text` in one line for a cell of a spreadsheet, which would execute it as a formula."""
    text = " ".join(re.split(r"[\r\n\t]", text))
    is_formula = text.startswith(FORMULA_BEGINS) and not NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def joint_name(names: Sequence[str]) -> str:
    """All `names` as a shell spells them: `strong-seed{1,2,3}`."""
    if len(names) == 1:
        return names[0]
    start = commonprefix(names)  # noqa: RUF071 — letters, not folders
    return f"{start}{{{','.join(name[len(start) :] for name in names)}}}"


def print_table(
    tables: Sequence[Table], text: str, document: object, *, form: TableFormat, as_json: bool
) -> None:
    """Print `tables` in another form than text, or else what the command has to say in `text`."""
    if as_json and form not in ("text", "json"):
        raise UsageError(f"--json contradicts --format {form}; give one of them")
    if as_json or form in ("text", "json"):
        print_result(text, document, as_json=as_json or form == "json")
    else:
        print_lines("\n\n".join(getattr(table, form)() for table in tables))
