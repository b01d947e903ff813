"""Tables, JSON, Parquet and TMX, against what the csv and json modules and pyarrow write."""

import csv
import gzip
import io
import json
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from mt_cli.data.records import record_texts
from mt_cli.data.tables import table_cells, table_rows
from mt_cli.data.text_files import MAX_LINE
from mt_cli.data.tmx import tmx_languages, tmx_texts, tmx_units
from mt_cli.errors import DataError, ResourceError

Rows = Sequence[Sequence[str]]
Texts = Sequence[str | None]


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def rows_in(path: Path) -> list[list[str]]:
    return [[cell.decode() for cell in cells] for _, cells in table_rows(path)]


# Tables

EXCEL = """\
Deutsch\tEnglish\r
"Er sagt: „Ja“, und geht."\t"He says: “Yes”, and leaves."\r
\"""Ja"", sagt er."\t\"""Yes,"" he says."\r
Ein Hund bellt.\tA dog barks.\r
"Ein 5"" großer Hund; er bellt."\tA dog; it barks.\r
"""


def test_quoted_cells_of_a_tsv_are_those_that_the_csv_module_reads(tmp_path: Path) -> None:
    expected = list(csv.reader(io.StringIO(EXCEL, newline=""), dialect="excel-tab"))
    assert rows_in(write(tmp_path / "a.tsv", EXCEL)) == expected
    assert expected[2][0] == '"Ja", sagt er.'


@pytest.mark.parametrize(
    "rows",
    [
        ['"Ja", sagt er.\t"Yes," he says.', '"Nein."\t"No."'],
        ['"Ja."\t"Yes."', "Ein Hund.\tA dog."],
        ['"\tA quotation mark.', 'Ein Hund.\t"'],
        ['"Er", sagt sie, "lügt."\t"He lies," she says.'],
    ],
)
def test_quotation_marks_of_the_text_are_left_alone(tmp_path: Path, rows: list[str]) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"{row}\n" for row in rows))
    assert rows_in(path) == [row.split("\t") for row in rows]


def spaces_alike(rows: Rows) -> list[list[str]]:
    return [[" ".join(cell.split()) for cell in row] for row in rows]


cells = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=6)
quotable_cells = st.lists(st.sampled_from(['"', ",", ";", "a", " "])).map("".join)
dialects = st.fixed_dictionaries(
    {
        "delimiter": st.sampled_from([",", ";"]),
        "lineterminator": st.sampled_from(["\n", "\r\n"]),
        "quoting": st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    }
)


@settings(max_examples=50)
@given(st.lists(st.tuples(cells | quotable_cells, cells | quotable_cells)), dialects)
def test_any_table_comes_back_from_a_csv(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    dialect: dict[str, Any],
) -> None:
    table = [("de", "en"), *rows]
    text = io.StringIO(newline="")
    csv.writer(text, **dialect).writerows(table)
    path = write(tmp_path_factory.getbasetemp() / "any.csv", text.getvalue())
    assert spaces_alike(rows_in(path)) == spaces_alike(table)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"Ein Hund.\r\nEr bellt.",A dog.\n"Eine\nKatze",A', ["Ein Hund. Er bellt.", "Eine Katze"]),
        ("sep=;\r\nJa, ja;Yes, yes\r\n", ["Ja, ja"]),
        ('"Ein\nHund" ,"A dog" \r\n"b"\t,"c"\n', ["Ein Hund", "b"]),
        ('Ein 5" Rohr,A 5" pipe\nEin 6" Rohr,A pipe\n', ['Ein 5" Rohr', 'Ein 6" Rohr']),
    ],
    ids=["line ends become spaces", "Excel's separator", "space behind quotes", "inches"],
)
def test_cells_of_a_csv_of_a_hand_worked_case(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    path = write(tmp_path / "a.csv", text)
    assert [cell.decode().strip() for cell in table_cells(path, 1)] == expected
    assert len(list(table_cells(path, 2))) == len(expected)


UNCLOSED = 'id,text\n1,"Ein ""Hund"", der\nrennt."\n2,"Eine Katze\n'


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", f"{UNCLOSED}3,Ein Mann lacht.\n", 4),  # no other quote
        ("a.csv", f'{UNCLOSED}3,"Ein Mann lacht."\n', 4),
        ("a.csv", "de;en\neine Katze;a cat\n\nein;Hund;a dog\n", 4),
        ("a.tsv", "de\ten\neine Katze\ta cat\n\nein Hund\n", 4),
        ("a.csv", 'de,en\nJa,Yes\n"Er sagt \\"Ja\\", und geht.","He says ""Yes""."\n', 3),
        ("a.csv", "SEP=;\r\nde;en\r\nJa\r\n", 3),
        pytest.param("a.csv", f"a,{'b' * (MAX_LINE + 1)}\n", 1, id="too long"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    with pytest.raises(DataError, match=rf"{name}: line {line}: "):
        rows_in(write(tmp_path / name, text))


# Texts under keys: JSON and Parquet

DE = ["Ein Hund.", "Er sagt: „Ja“.", "zwei\nHunde", "", "\u2028"]
EN = ["A dog.", 'He says: "Yes".', "two\ndogs", "nothing", "\u2028"]


def as_read(texts: Texts) -> list[str]:
    return [" ".join((text or "").split("\n")) for text in texts]


def read(path: Path, key: str) -> list[str]:
    return [text.decode() for text in record_texts(path, key)]


def records(de: Texts, en: Texts) -> list[dict[str, object]]:
    return [{"id": 1, "translation": {"de": a, "en": b}} for a, b in zip(de, en, strict=True)]


def write_parquet(path: Path, de: Texts = DE, en: Texts = EN) -> Path:
    table = pyarrow.Table.from_pylist(records(de, en))
    parquet.write_table(table, path, row_group_size=2)
    return path


def test_an_array_has_the_texts_of_the_lines(tmp_path: Path) -> None:
    text = "".join(f"{json.dumps(each)}\n" for each in records(DE, EN))
    lines = write(tmp_path / "a.jsonl", text)
    packed = gzip.compress(json.dumps(records(DE, EN), indent=2).encode())
    array = write(tmp_path / "a.json.gz", packed)
    assert read(lines, "translation.de") == read(array, "translation.de") == as_read(DE)
    assert read(lines, "translation.en") == read(array, "translation.en") == as_read(EN)


def test_a_line_without_a_record_has_no_text(tmp_path: Path) -> None:
    lines = '{"de": "eins"}\n\nnull\n{"de": null}\n{"de": "zwei"}\n'
    assert read(write(tmp_path / "a.jsonl", lines), "de") == ["eins", "", "", "", "zwei"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[{"de": "eins"}, {"en": "two"}]', "record 2: no key 'de', only en"),
        ('[{"de": 3}]', "record 1: .*not text"),
        ("[" * 100_000, "damaged or invalid JSON"),
    ],
    ids=["key", "number", "depth"],
)
def test_what_is_wrong_with_an_array_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = write(tmp_path / "a.json", text)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}: {named}"):
        read(path, "de")


def test_a_key_may_have_dots_itself(tmp_path: Path) -> None:
    lines = '{"text.de": "eins", "text": {"de": "zwei"}}\n{"text": {"de": "drei"}}\n'
    assert read(write(tmp_path / "a.jsonl", lines), "text.de") == ["eins", "drei"]
    kind = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    table = pyarrow.table({"text.de": pyarrow.array(["eins"]).cast(kind)})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", "text.de") == ["eins"]


texts = st.lists(st.tuples(st.text(max_size=8), st.none() | st.text(max_size=8)), max_size=8)


@settings(max_examples=30)
@given(texts)
def test_any_texts_come_back_from_parquet(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str | None]]
) -> None:
    de, en = zip(*pairs, ("Ende", "end"), strict=True)
    path = write_parquet(tmp_path_factory.getbasetemp() / "any.parquet", de, en)
    assert read(path, "translation.de") == as_read(de)
    assert read(path, "translation.en") == as_read(en)


@pytest.mark.parametrize(
    ("key", "most", "named"),
    [
        ("de", None, r"no key 'de', only id, translation\.de, translation"),
        ("id", -20, "invalid Parquet"),
    ],
    ids=["key", "cut"],
)
def test_what_is_wrong_with_a_parquet_file_is_named(
    tmp_path: Path, key: str, most: int | None, named: str
) -> None:
    path = write_parquet(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:most])
    with pytest.raises(DataError, match=rf"a\.parquet: .*{named}"):
        read(path, key)


def test_without_pyarrow_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ResourceError, match=r"mt_cli\[parquet\]"):
        read(path, "translation.de")


# Translation memories

TMX = """\
<?xml version="1.0" encoding="ENCODING"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="de-DE"/><body>
  <tu><prop type="x">p</prop><note>n</note>
    <tuv xml:lang="en"><seg>Two &amp; three</seg></tuv>
    <tuv xml:lang="de-DE"><seg>Zwei &amp; drei</seg></tuv></tu>
  <tu tuid="2"><tuv xml:lang="de-DE"><seg>Ein <bpt i="1">&lt;b&gt;</bpt>großer<ept i="1"/>
    <hi>Hund</hi>.</seg></tuv></tu>
  <tu><tuv lang="de"><seg/></tuv><tuv lang="en"><seg>nothing</seg></tuv></tu>
</body></tmx>
"""


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_texts_of_a_memory_are_read_by_language_and_side(tmp_path: Path, encoding: str) -> None:
    text = TMX.replace("ENCODING", encoding.removesuffix("-sig"))
    path = write(tmp_path / "m.tmx", text.encode(encoding))
    german, english = ["Zwei & drei", "Ein großer Hund.", ""], ["Two & three", "", "nothing"]
    expected = {"de": german, "src": german, "en": english, "en-GB": english, "tgt": english}
    found = {column: [text.decode() for text in tmx_texts(path, column)] for column in expected}
    assert found == expected
    assert tmx_languages(path) == ["de-DE", "en"]


def test_what_is_no_memory_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"m\.tmx: .*invalid XML"):
        list(tmx_texts(write(tmp_path / "m.tmx", "<tmx><body><tu>"), "de"))


def test_the_own_variant_of_a_language_is_read_first(tmp_path: Path) -> None:
    tuvs = {"pt-BR": "um trem", "pt-PT": "um comboio", "en-US": "", "en-GB": "a train"}
    unit = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in tuvs.items())
    path = write(tmp_path / "m.tmx", f"<tmx><body><tu>{unit}</tu></body></tmx>")
    langs = ("pt-PT", "pt-br", "pt", "pt-AO", "en", "en-US")
    found = [next(tmx_texts(path, lang)).decode() for lang in langs]
    assert found == ["um comboio", *["um trem"] * 3, *["a train"] * 2]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="de"><seg>Ein Hund schläft auf dem Sofa.</seg></tuv></tu>\n'
    path = write(tmp_path / "m.tmx", f"<tmx><body>{unit * 200_000}</body></tmx>")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in tmx_units(path)) == 200_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10
