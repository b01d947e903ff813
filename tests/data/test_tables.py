"""Tables, as spreadsheets and the csv module write them."""

import codecs
import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.data.files import MAX_LINE
from mt_cli.data.readers import cells_of, header_of, rows_of
from mt_cli.errors import DataError


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def rows_in(path: Path) -> list[list[str]]:
    return [[cell.decode() for cell in cells] for _, cells in rows_of(path)]


def as_excel_writes(rows: Sequence[Sequence[str]], *, delimiter: str = "\t") -> bytes:
    """A table in which cells with a comma, a quotation mark or the delimiter are quoted."""

    def cell(text: str) -> str:
        doubled = text.replace('"', '""')
        return f'"{doubled}"' if {*text} & {",", '"', delimiter} else text

    return "".join(f"{delimiter.join(map(cell, row))}\r\n" for row in rows).encode()


TABLE = [
    ["Deutsch", "English"],
    ["Er sagt: „Ja“, und geht.", "He says: “Yes”, and leaves."],
    ['"Ja", sagt er.', '"Yes," he says.'],
    ["Ein Hund bellt.", "A dog barks."],
    ['Ein 5" großer Hund; er bellt.', "A dog; it barks."],
]


def test_quoted_cells_of_a_tsv_are_those_that_the_csv_module_reads(tmp_path: Path) -> None:
    data = as_excel_writes(TABLE)
    path = write(tmp_path / "a.tsv", data)
    expected = list(csv.reader(io.StringIO(data.decode(), newline=""), dialect="excel-tab"))
    assert rows_in(path) == expected == TABLE


@pytest.mark.parametrize(
    "rows",
    [
        ['"Ja", sagt er.\t"Yes," he says.', '"Nein."\t"No."'],
        ['"Ja."\t"Yes."', "Ein Hund.\tA dog."],
        ['Ein 5" Rohr, alt.\tA 5" pipe, old.'],
        ['"\tA quotation mark.', 'Ein Hund.\t"'],
        ['"Er", sagt sie, "lügt."\t"He lies," she says.'],
        ["'Ja', sagt er.\t'Yes', he says."],
    ],
)
def test_quotation_marks_of_the_text_are_left_alone(tmp_path: Path, rows: list[str]) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"{row}\n" for row in rows).encode())
    assert rows_in(path) == [row.split("\t") for row in rows]


def as_csv(rows: Iterable[Sequence[str]], *, delimiter: str, end: str, quotes_all: bool) -> bytes:
    """A table as the csv module writes it."""
    table = io.StringIO(newline="")
    writer = csv.writer(
        table,
        delimiter=delimiter,
        lineterminator=end,
        quoting=csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL,
    )
    writer.writerows(rows)
    return table.getvalue().encode()


def spaces_alike(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    return [[" ".join(cell.split()) for cell in row] for row in rows]


cells = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=6)
quotable_cells = st.lists(st.sampled_from(['"', ",", ";", "a", " "])).map("".join)


def dialects(*ends: str) -> st.SearchStrategy[dict[str, Any]]:
    """Ways of `as_csv` to write a table."""
    return st.fixed_dictionaries(
        {
            "delimiter": st.sampled_from([",", ";"]),
            "end": st.sampled_from(ends),
            "quotes_all": st.booleans(),
        }
    )


@settings(max_examples=50)
@given(st.lists(st.tuples(cells | quotable_cells, cells | quotable_cells)), dialects("\n", "\r\n"))
def test_any_table_comes_back_from_a_csv(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    dialect: dict[str, Any],
) -> None:
    table = [("de", "en"), *rows]
    data = as_csv(table, **dialect)
    path = write(tmp_path_factory.getbasetemp() / "any.csv", data)
    assert spaces_alike(rows_in(path)) == spaces_alike(table)


def test_a_line_end_within_a_cell_of_a_csv_becomes_a_space(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'"Ein Hund.\r\nEr bellt.",A dog.\n"Eine\nKatze",A cat.\n')
    assert list(cells_of(path, 1)) == [b"Ein Hund. Er bellt.", b"Eine Katze"]
    assert list(cells_of(path, 2)) == [b"A dog.", b"A cat."]


@pytest.mark.parametrize("text", ["a\rb,c\n", f"a,{'b' * (MAX_LINE + 1)}\n"])
def test_what_is_no_table_is_named(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.csv", text.encode())
    with pytest.raises(DataError, match=r"a\.csv"):
        list(rows_of(path))


@pytest.mark.parametrize(
    "last",
    ["3,Ein Mann lacht.\n", '3,"Ein Mann lacht."\n', "", '3,"Ein Mann lacht.'],
    ids=["no other quote", "a quoted cell", "the end", "another at the end"],
)
def test_a_quote_that_nothing_closes_is_named_with_its_line(tmp_path: Path, last: str) -> None:
    rows = f'id,text\n1,"Ein ""Hund"", der\nrennt."\n2,"Eine Katze\n{last}'
    path = write(tmp_path / "a.csv", rows.encode())
    with pytest.raises(DataError, match=r"a\.csv: line 4: "):
        list(rows_of(path))


def test_space_behind_a_quoted_cell_is_no_fault(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'"Ein\nHund" ,"A dog" \r\n"b"\t,"c"\n')
    assert len(list(cells_of(path, 2))) == 2


def test_a_mark_of_inches_is_no_quote(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'Ein 5" Rohr,A 5" pipe\nEin 6" Rohr,A pipe\n')
    assert list(cells_of(path, 1)) == [b'Ein 5" Rohr', b'Ein 6" Rohr']


def test_a_long_cell_is_read(tmp_path: Path) -> None:
    long = b"b" * (MAX_LINE - 10)
    path = write(tmp_path / "a.csv", b"a," + long + b"\n")
    assert list(cells_of(path, 2)) == [long]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("last", ["ein;Hund;a dog", "ein Hund"])
def test_a_row_that_is_not_as_wide_as_the_header_is_refused_with_its_line(
    tmp_path: Path, name: str, last: str
) -> None:
    text = f"de;en\neine Katze;a cat\n\n{last}\n"
    if name == "a.tsv":
        text = text.replace(";", "\t")
    path = write(tmp_path / name, text.encode())
    with pytest.raises(DataError, match=rf"{name}: line 4: "):
        list(cells_of(path, 1))


def test_quotes_that_are_escaped_by_backslashes_are_refused(tmp_path: Path) -> None:
    rows = 'de,en\nJa,Yes\n"Er sagt \\"Ja\\", und geht.","He says ""Yes"", and leaves."\n'
    path = write(tmp_path / "a.csv", rows.encode())
    with pytest.raises(DataError, match=r"a\.csv: line 3: .*doubled"):
        list(cells_of(path, 1))


def test_the_line_in_which_excel_names_the_separator_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"sep=;\r\nde;en\r\nJa, ja;Yes, yes\r\n")
    assert list(cells_of(path, "de")) == [b"Ja, ja"]
    assert rows_in(path) == [["de", "en"], ["Ja, ja", "Yes, yes"]]
    write(path, b"SEP=;\r\nde;en\r\nJa\r\n")
    with pytest.raises(DataError, match="line 3"):
        rows_in(path)


def test_columns_of_packed_tables_have_names_or_numbers(tmp_path: Path) -> None:
    data = codecs.BOM_UTF8 + as_excel_writes(TABLE, delimiter=";")
    path = write(tmp_path / "a.csv.gz", gzip.compress(data))
    assert [text.decode() for text in cells_of(path, "Deutsch")] == [row[0] for row in TABLE[1:]]
    assert [text.decode() for text in cells_of(path, 2)] == [row[1] for row in TABLE]


# Names of columns

SENTENCES = [f"Ein Hund mit {i} Flecken bellt.\tA dog with {i} spots barks." for i in range(200)]
SHORT = [f"Hund {i}\tdog {i}" for i in range(200)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["Deutsch\tEnglish", *SENTENCES], ["Deutsch", "English"]),
        (["source text\tEnglisch", *SENTENCES], ["source text", "Englisch"]),
        (SENTENCES, []),
        (["Der Hund bellt\tThe dog barks", *SENTENCES], []),
        (["Deutsch\t", *SENTENCES], []),
        (["1\tHund", *SENTENCES], []),
        (["Deutsch\tEnglish", *SHORT[:2], *SENTENCES], ["Deutsch", "English"]),
        ([], []),
    ],
)
def test_a_first_line_has_names_if_hardly_another_looks_so(
    tmp_path: Path, rows: list[str], expected: list[str]
) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"{row}\n" for row in rows).encode())
    assert header_of(path) == expected
    as_csv = "".join(f"{row.replace(chr(9), ',')}\n" for row in rows)
    assert header_of(write(tmp_path / "a.csv", as_csv.encode())) == expected
