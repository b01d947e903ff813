"""Text files as people have them: what is read of them, and what is refused by name."""

import bz2
import csv
import gzip
import importlib
import io
import lzma
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.data.files import (
    column_of,
    format_of,
    has_columns,
    header_of,
    open_text,
    read_text,
    rows_of,
    text_lines,
)
from mt_cli.errors import DataError

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
zstd = importlib.import_module(ZSTD)
Pack = Callable[[bytes], bytes]
EMPTY_FRAME = bytes.fromhex("502a4d18 04000000 01020304")
"""Without text; pzstd begins with it."""
PACKINGS: dict[str, Pack] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: EMPTY_FRAME + zstd.compress(data),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
every_packing = pytest.mark.parametrize("packing", PACKINGS)
TEXT = "Ein Hund\r\n\nder\u2028Ball \x00\nein\rMann\nletzte"
LINES = [b"Ein Hund\r\n", b"\n", "der\u2028Ball \x00\n".encode(), b"ein\rMann\n", b"letzte"]
BOM = b"\xef\xbb\xbf"


def write(path: Path, data: bytes, *, packing: str = "") -> Path:
    path.write_bytes(PACKINGS[packing](data))
    return path


# Packed or not


@every_packing
def test_a_packed_file_has_the_lines_of_the_plain_one(tmp_path: Path, packing: str) -> None:
    path = write(tmp_path / "text", TEXT.encode(), packing=packing)  # whatever its name says
    assert list(text_lines(path)) == LINES
    assert read_text(path) == b"".join(LINES)


@every_packing
def test_files_one_after_another_in_one_are_read_whole(tmp_path: Path, packing: str) -> None:
    pack = PACKINGS[packing]
    path = tmp_path / "text"
    path.write_bytes(pack(b"Ein Hund\nzwei ") + pack(b"Hunde\n"))
    assert list(text_lines(path)) == [b"Ein Hund\n", b"zwei Hunde\n"]


@every_packing
def test_one_byte_order_mark_at_the_start_is_no_text(tmp_path: Path, packing: str) -> None:
    path = write(tmp_path / "text", BOM + b"Hund\n" + BOM + b"Ball\n", packing=packing)
    assert list(text_lines(path)) == [b"Hund\n", BOM + b"Ball\n"]
    path = write(tmp_path / "twice", BOM + BOM + b"Hund\n", packing=packing)
    assert read_text(path) == BOM + b"Hund\n"


def test_a_file_that_was_packed_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.de", gzip.compress(b"Ein Hund\n"), packing=".gz")
    with pytest.raises(DataError, match=r"^\S*/corpus\.de: "):
        read_text(path)


@every_packing
def test_a_file_of_nothing_has_no_lines(tmp_path: Path, packing: str) -> None:
    assert list(text_lines(write(tmp_path / "text", b"", packing=packing))) == []


@pytest.mark.parametrize("packing", list(PACKINGS)[1:])
def test_a_packed_file_that_was_cut_is_named(tmp_path: Path, packing: str) -> None:
    packed = PACKINGS[packing](b"".join(b"%d Hunde\n" % i for i in range(4000)))
    path = tmp_path / "text"
    path.write_bytes(packed[: len(packed) // 2])
    for read in (read_text, lambda path: list(text_lines(path))):
        with pytest.raises(DataError, match=r"^\S*/text: "):
            read(path)


@pytest.mark.parametrize("packing", list(PACKINGS)[1:])
def test_a_packed_file_with_a_wrong_byte_is_named(tmp_path: Path, packing: str) -> None:
    pack = PACKINGS[packing]
    if packing == ".zst":  # as the command zstd packs, which adds a checksum
        pack = partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1})
    packed = bytearray(pack(b"".join(b"%d Hunde\n" % i for i in range(4000))))
    packed[len(packed) // 2] ^= 0x55
    path = tmp_path / "text"
    path.write_bytes(packed)
    with pytest.raises(DataError, match=r"^\S*/text: "):
        read_text(path)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(gzip.compress(TEXT.encode()),))
    writer.start()
    assert read_text(path) == TEXT.encode()
    writer.join()


# No text, or text of another kind

UTF_16 = "Ein Hund bellt laut im Garten.\n" * 4
REFUSED = {
    "UTF-16 of Windows": UTF_16.encode("utf-16"),
    "UTF-16 big-endian": b"\xfe\xff" + UTF_16.encode("utf-16-be"),
    "UTF-16 without a mark": UTF_16.encode("utf-16-le"),
    "UTF-32": UTF_16.encode("utf-32"),
    "zip": b"PK\x03\x04\x14\x00\x00\x00\x08\x00",
    "old Office": bytes.fromhex("d0cf11e0a1b11ae1"),
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x04",
    "PDF": b"%PDF-1.7\n",
    "RTF": b"{\\rtf1\\ansi Ein Hund}\n",
    "parquet": b"PAR1\x15\x04\x15",
    "CR alone": b"Ein Hund\rzwei Hunde\r",
    "NUL bytes": bytes(1000),
}


@pytest.mark.parametrize(("kind", "packing"), [*((kind, "") for kind in REFUSED), ("zip", ".gz")])
def test_a_file_that_is_no_text_in_utf_8_is_refused_by_name(
    tmp_path: Path, kind: str, packing: str
) -> None:
    path = write(tmp_path / "corpus.de", REFUSED[kind], packing=packing)
    for read in (read_text, lambda path: list(text_lines(path))):
        with pytest.raises(DataError, match=r"^\S*/corpus\.de: ") as caught:
            read(path)
        assert "cannot be read" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"Hund\r",
        b"Hund\r\n",
        b"\r\nHund\r\n",
        b"ein\rHund\nzwei\n",
        b"\x00\x00\n",
        b"Hund" * 30 + bytes(40) + b"\n",
        b"PKW\n",
        b"BZ\n",
        b"\xff\xfd kaputt\n",
    ],
    ids=["CR", "CRLF", "empty line", "CR within", "NULs", "some NULs", "PKW", "BZ", "not UTF-8"],
)
def test_text_that_only_looks_like_something_else_is_read(tmp_path: Path, data: bytes) -> None:
    assert read_text(write(tmp_path / "text", data)) == data


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match=f"^{re.escape(str(path))}: "), open_text(path):
            pass


# Columns


def cells_of(path: Path) -> list[list[str]]:
    return [[cell.decode() for cell in row] for row in rows_of(path)]


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
    assert cells_of(path) == expected == TABLE


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
    assert cells_of(path) == [row.split("\t") for row in rows]


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


@settings(max_examples=50)
@given(
    st.lists(st.tuples(cells | quotable_cells, cells | quotable_cells)),
    st.sampled_from([",", ";"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_any_table_comes_back_from_a_csv(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    delimiter: str,
    end: str,
    quotes_all: bool,
) -> None:
    table = [("de", "en"), *rows]
    data = as_csv(table, delimiter=delimiter, end=end, quotes_all=quotes_all)
    path = write(tmp_path_factory.getbasetemp() / "any.csv", data)
    assert spaces_alike(cells_of(path)) == spaces_alike(table)


def test_a_line_end_within_a_cell_of_a_csv_becomes_a_space(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'"Ein Hund.\r\nEr bellt.",A dog.\n"Eine\nKatze",A cat.\n')
    assert cells_of(path) == [["Ein Hund. Er bellt.", "A dog."], ["Eine Katze", "A cat."]]


@pytest.mark.parametrize("packing", PACKINGS)
def test_columns_of_packed_tables_have_names_or_numbers(tmp_path: Path, packing: str) -> None:
    data = BOM + as_excel_writes(TABLE, delimiter=";")
    path = write(tmp_path / f"a.csv{packing}", data, packing=packing)
    assert [text.decode() for text in column_of(path, "Deutsch")] == [row[0] for row in TABLE[1:]]
    assert [text.decode() for text in column_of(path, 2)] == [row[1] for row in TABLE]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.TAB", "tsv"), ("a.csv.gz", "csv"), ("a.jsonl.zst", "json"), ("a.ndjson.xz", "json")],
)
def test_a_name_says_how_a_table_is_written(tmp_path: Path, name: str, expected: str) -> None:
    assert has_columns(Path(name))
    assert format_of(tmp_path / name) == expected


@pytest.mark.parametrize("name", ["a.de.gz", "tsv", "a.tsv.de"])
def test_other_names_are_those_of_plain_text(name: str) -> None:
    assert not has_columns(Path(name))


def test_the_first_line_says_it_where_the_name_does_not(tmp_path: Path) -> None:
    assert format_of(write(tmp_path / "corpus", b' {"src": "a"}\n')) == "json"
    assert format_of(write(tmp_path / "corpus", b"a\tb\n")) == "tsv"


# Names of columns

SENTENCES = [f"Ein Hund mit {i} Flecken bellt.\tA dog with {i} spots barks." for i in range(200)]
SHORT = [f"Hund {i}\tdog {i}" for i in range(200)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["Deutsch\tEnglish", *SENTENCES], ["Deutsch", "English"]),
        (["source text\tEnglisch\tscore", *SENTENCES], ["source text", "Englisch", "score"]),
        (SENTENCES, []),
        (["Der Hund bellt\tThe dog barks", *SENTENCES], []),
        (["Deutsch\t", *SENTENCES], []),
        (["Deutsch", *SENTENCES], []),
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
