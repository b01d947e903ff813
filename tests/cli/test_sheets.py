"""`translate -o review.csv`: a row for each line with what may be wrong, and tables as input."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from workspace import READY_MODEL, Workspace

LINES = [
    "Ein Hund rennt.",
    "- Ein Mann schläft.",
    "",
    "Łukasz lacht in Łódź.",
    "=1+1 ist 2.",
    "Der Preis ist 1999 Euro, sagt @anna.",
    "This sentence is not in the language of the model at all.",
]


def rows_in(path: Path) -> list[dict[str, str]]:
    """What the csv module reads."""
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def as_cell(value: Any) -> str:  # noqa: ANN401 — of JSON
    if isinstance(value, list):
        return ", ".join(value)
    return "yes" if value is True else value or ""


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_sheet_has_what_json_has(workspace: Workspace, tmp_path: Path, ending: str) -> None:
    source, sheet, terms = tmp_path / "in.txt", tmp_path / f"review{ending}", tmp_path / "terms.tsv"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    terms.write_text("Hund\thound\nMann\tbloke\n")
    args = ("translate", READY_MODEL, "-i", source, "--glossary", terms)
    documents = [json.loads(line) for line in workspace.call(*args, "--json").lines]
    outcome = workspace.call(*args, "-o", sheet)
    assert (outcome.code, outcome.out) == (0, b"")
    rows = rows_in(sheet)
    assert [row["line"] for row in rows] == [str(number + 1) for number in range(len(LINES))]
    for row, document, line in zip(rows, documents, LINES, strict=True):
        assert row["source"].removeprefix("'") == line
        assert row["translation"].removeprefix("'") == document["translation"]
        assert float(row["mean_log_prob"]) == pytest.approx(document["mean_log_prob"], abs=1e-4)
        doubtful = [each["word"] for each in document["words"] if each["log_prob"] < -0.6931472]
        assert row["doubtful_words"] == " ".join(doubtful)
        for key in ("changed_number", "unlearnt_letters", "missing_terms", "language", "is_cut"):
            assert row[key] == as_cell(document[key])
    assert rows[3]["unlearnt_letters"].startswith("Ł")
    assert rows[6]["language"] == "en"


def test_a_spreadsheet_executes_no_cell(workspace: Workspace, tmp_path: Path) -> None:
    source, sheet = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text('text,@note\n=1+1,"-2,5"\n+3,@a\n"Ein ""Hund"".",ok\n')
    outcome = workspace.call("translate", "de-en", "-i", source, "--columns", "text", "-o", sheet)
    assert outcome.code == 0, outcome.err
    text = sheet.read_text(encoding="utf-8-sig")
    rows = rows_in(sheet)
    cells = [cell for row in rows for cell in row.values()]
    beginnings = [cell for cell in [*cells, *rows[0]] if cell.startswith(("=", "+", "-", "@"))]
    assert all(re.fullmatch(r"[-+]\d+(?:[.,]\d+)*", cell) for cell in beginnings)
    assert [row["source"] for row in rows] == ["'=1+1", "+3", 'Ein "Hund".']
    assert [row["'@note"] for row in rows] == ["-2,5", "'@a", "ok"]
    assert text.startswith("line,'@note,source,translation,mean_log_prob,")


@pytest.mark.parametrize("column", ["Deutsch", "2"])
def test_a_column_is_translated_and_the_others_are_kept(
    workspace: Workspace, tmp_path: Path, column: str
) -> None:
    source, sheet = tmp_path / "job.csv", tmp_path / "review.tsv"
    head = [] if column == "2" else ["id;Deutsch;note"]
    source.write_text("\n".join([*head, '7;Ein Hund.;"a; b"', "", '8;"Ein\nMann.";c', ""]))
    args = ("translate", READY_MODEL, "-i", source, "--columns", column)
    lines = workspace.call("translate", READY_MODEL, "--text", "Ein Hund.\n\nEin Mann.").lines
    assert workspace.call(*args).lines == lines
    assert workspace.call(*args, "-o", sheet).code == 0
    rows = [list(row.values()) for row in rows_in(sheet)]
    kept = [row[:5] for row in rows]
    assert kept == [
        ["1", "7", "a; b", "Ein Hund.", lines[0]],
        ["2", "", "", "", ""],
        ["3", "8", "c", "Ein Mann.", lines[2]],
    ]


@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        (("-i", "job.csv"), 2, "--columns"),
        (("-i", "job.csv", "--columns", "English"), 3, "id, Deutsch"),
        (("-i", "job.csv", "--columns", "3"), 3, "column 3"),
        (("-i", "job.csv", "--columns", "0"), 3, "column 0"),
        (("-i", "job.txt", "--columns", "Deutsch"), 2, "job.txt"),
        (("--text", "Ja.", "--columns", "Deutsch"), 2, "--input"),
        (("--text", "Ja.", "-o", "out.csv", "--json"), 2, "--json"),
        (("--text", "Ja.", "-o", "out.xlsx"), 2, ".csv"),
        (("--text", "Ja.", "-o", "out.docx"), 2, ".csv"),
        (("--text", "Ja.", "-o", "out.csv.gz"), 2, ".csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_no_table_is_refused(
    workspace: Workspace,
    tmp_path: Path,
    args: tuple[str, ...],
    code: int,
    named: str,
) -> None:
    for name in ("job.csv", "job.txt"):
        tmp_path.joinpath(name).write_text("id,Deutsch\n1,Ja.\n")
    paths = [tmp_path / arg if arg.startswith(("job.", "out.")) else arg for arg in args]
    outcome = workspace.call("translate", READY_MODEL, *paths)
    assert (outcome.code, outcome.out) == (code, b"")
    assert named in outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.csv", "job.txt"]


def test_cells_have_one_line_and_bytes_that_are_no_text_are_told(
    workspace: Workspace, tmp_path: Path
) -> None:
    source, sheet = tmp_path / "in.txt", tmp_path / "out.tsv"
    source.write_bytes("Ein\rHund.\nEine\tKatze „hier“.\n".encode())
    assert workspace.call("translate", READY_MODEL, "-i", source, "-o", sheet).code == 0
    assert [row["source"] for row in rows_in(sheet)] == ["Ein Hund.", "Eine Katze „hier“."]
    again = workspace.call("translate", READY_MODEL, "-i", sheet, "--columns", "source")
    assert (again.code, len(again.lines)) == (0, 2)
    table = tmp_path / "latin.csv"
    table.write_bytes("id;text\n1;Zwei Männer.\n2;Ein Hund.\n".encode("latin-1"))
    outcome = workspace.call("translate", READY_MODEL, "-i", table, "--columns", "text")
    assert (outcome.code, len(outcome.lines)) == (0, 2)
    assert "1 rows are not valid UTF-8" in outcome.err


def test_an_empty_table_has_a_head(workspace: Workspace, tmp_path: Path) -> None:
    source, sheet = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("\nid,text\n")
    outcome = workspace.call(
        "translate", READY_MODEL, "-i", source, "--columns", "text", "-o", sheet
    )
    assert outcome.code == 0, outcome.err
    assert sheet.read_text(encoding="utf-8-sig").startswith("line,id,source,translation,")
