"""Texts under keys, against what the json module and pyarrow write."""

import gzip
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from mt_cli.config.schema import FilesConfig
from mt_cli.data.corpora import ParallelText
from mt_cli.data.readers import values_of
from mt_cli.errors import DataError, ResourceError

Texts = Sequence[str | None]
DE = ["Ein Hund.", "Er sagt: „Ja“.", "zwei\nHunde", "", "\u2028"]
EN = ["A dog.", 'He says: "Yes".', "two\ndogs", "nothing", "\u2028"]


def as_read(texts: Texts) -> list[str]:
    return [" ".join((text or "").split("\n")) for text in texts]


def read(path: Path, key: str) -> list[str]:
    return [text.decode() for text in values_of(path, key)]


def records(de: Texts, en: Texts) -> list[dict[str, object]]:
    return [{"id": 1, "translation": {"de": a, "en": b}} for a, b in zip(de, en, strict=True)]


def write_parquet(path: Path, de: Texts, en: Texts) -> Path:
    table = pyarrow.Table.from_pylist(records(de, en))
    parquet.write_table(table, path, row_group_size=2)
    return path


# JSON


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_has_the_texts_of_the_lines(tmp_path: Path, indent: int | None) -> None:
    lines, array = tmp_path / "a.jsonl", tmp_path / "a.json.gz"
    lines.write_text("".join(f"{json.dumps(each)}\n" for each in records(DE, EN)))
    array.write_bytes(gzip.compress(json.dumps(records(DE, EN), indent=indent).encode()))
    for key, expected in (("translation.de", DE), ("translation.en", EN)):
        assert read(lines, key) == read(array, key) == as_read(expected)


def test_a_line_without_a_record_has_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"de": "eins"}\n\nnull\n{"de": null}\n{"de": "zwei"}\n')
    assert read(path, "de") == ["eins", "", "", "", "zwei"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[{"de": "eins"}, {"en": "two"}]', "record 2: no key 'de'; it has en"),
        ('[{"de": "eins"}, "zwei"]', "record 2: no key 'de'; it has no object"),
        ('[{"de": 3}]', "record 1: .*no text"),
        ('[{"de": "eins"},', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_wrong_with_an_array_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}: {named}"):
        read(path, "de")


def test_a_key_may_have_dots_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text.de": "eins", "text": {"de": "zwei"}}\n{"text": {"de": "drei"}}\n')
    assert read(path, "text.de") == ["eins", "drei"]
    table = pyarrow.table({"text.de": ["eins"], "text.en": ["one"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", "text.de") == ["eins"]


# Parquet

texts = st.lists(st.tuples(st.text(max_size=8), st.none() | st.text(max_size=8)), max_size=8)


@settings(max_examples=30)
@given(texts)
def test_any_texts_come_back_from_parquet(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str | None]]
) -> None:
    de, en = [de for de, _ in pairs], [en for _, en in pairs]
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    write_parquet(path, [*de, "Ende"], [*en, "end"])
    assert read(path, "translation.de") == as_read([*de, "Ende"])
    assert read(path, "translation.en") == as_read([*en, "end"])


@pytest.mark.parametrize(
    "kind", [pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())]
)
def test_a_column_of_any_kind_of_text_is_read(tmp_path: Path, kind: pyarrow.DataType) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"de": pyarrow.array(["eins", "zwei"]).cast(kind)}), path)
    assert read(path, "de") == ["eins", "zwei"]


def test_both_sides_of_a_parquet_file_are_a_corpus(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", DE, EN)
    files = FilesConfig(
        src=(path,), tgt=(path,), src_column="translation.de", tgt_column="translation.en"
    )
    pairs = list(ParallelText.of(files).pairs())
    expected = zip(as_read(DE), as_read(EN), strict=True)
    assert pairs == [(de.encode(), en.encode()) for de, en in expected]


def test_what_is_wrong_with_a_parquet_file_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", DE, EN)
    with pytest.raises(DataError, match=r"no key 'de'; it has id, translation\.de, translation"):
        read(path, "de")
    with pytest.raises(DataError, match="'id' is no text"):
        read(path, "id")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(path, "id")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read(tmp_path / "none.parquet", "de")


def test_without_pyarrow_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "a.parquet", DE, EN)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ResourceError, match=r"mt_cli\[parquet\]"):
        read(path, "translation.de")
