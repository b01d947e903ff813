"""Corpora: which files are found, and what their pairs are."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from mt_cli.config.schema import DataConfig, FilesConfig
from mt_cli.data.corpora import ParallelText, corpus_hashes, find_corpus
from mt_cli.errors import ConfigError, DataError


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


def pairs_of(src: Path, tgt: Path, **columns: object) -> ParallelText:
    return ParallelText.of(FilesConfig.model_validate({"src": src, "tgt": tgt, **columns}))


def read(folder: Path) -> list[tuple[bytes, bytes]]:
    return list(pairs_of(folder / "src", folder / "tgt").pairs())


def test_sample_needs_no_folder() -> None:
    corpus = find_corpus(DataConfig(), offline=True)
    assert list(corpus) == ["train", "val", "test"]
    assert sum(1 for _ in corpus["test"].pairs()) >= 200


def test_missing_files_are_named(tmp_path: Path) -> None:
    files = {
        name: FilesConfig(src=(tmp_path / f"{name}.x",), tgt=(tmp_path / f"{name}.y",))
        for name in ("train", "val")
    }
    config = DataConfig(corpus="files", splits=("train", "val"), files=files)
    with pytest.raises(DataError, match=r"train\.x.*val\.y"):
        find_corpus(config)


@pytest.mark.parametrize(("num_src", "num_tgt"), [(5, 3), (2, 7), (0, 1)])
def test_unequal_length_is_told_with_both_counts(
    tmp_path: Path, num_src: int, num_tgt: int
) -> None:
    write(tmp_path, {"src": b"a\n" * num_src, "tgt": b"b\n" * num_tgt})
    with pytest.raises(DataError, match=rf"tgt: {num_tgt} .*src has {num_src};"):
        read(tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_line_without_end_is_refused_by_number_and_never_held(
    tmp_path: Path, pack: type[bytes]
) -> None:
    write(tmp_path, {"src": pack(b"ein Hund\n" + b"x" * (24 << 20)), "tgt": b"a dog\n\n"})
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"src: line 2: "):
            read(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_several_files_follow_each_other(tmp_path: Path) -> None:
    write(tmp_path, {"1.de": b"eins\nzwei", "2.de": b"drei\n", "en": b"one\ntwo\nthree\n"})
    files = {"src": [tmp_path / "1.de", tmp_path / "2.de"], "tgt": tmp_path / "en"}
    corpus = {"train": ParallelText.of(FilesConfig.model_validate(files))}
    sources = [src.strip() for src, _ in corpus["train"].pairs()]
    assert sources == [b"eins", b"zwei", b"drei"]
    assert list(corpus_hashes(corpus)) == ["train.src", "train.src.2", "train.tgt"]


# Files of columns, which hold both sides

TSV = "Deutsch\tscore\tEnglisch\nein Hund\t0.9\ta dog\n\nzwei\t\ttwo\r\n"
JSONL = (
    '{"de": "ein Hund", "translation": {"en": "a dog", "fr": "un chien"}}\n'
    '{"de": "zwei\\nHunde", "translation": {"en": "two dogs"}}'
)


def read_columns(path: Path, text: str, **columns: object) -> list[tuple[bytes, bytes]]:
    path.write_text(text, encoding="utf-8", newline="")
    return list(pairs_of(path, path, **columns).pairs())


def test_columns_of_a_tsv_have_names_or_numbers(tmp_path: Path) -> None:
    pairs = [(b"ein Hund", b"a dog"), (b"", b""), (b"zwei", b"two")]
    named = read_columns(tmp_path / "a.tsv", TSV, src_column="Deutsch", tgt_column="Englisch")
    assert named == pairs
    body = TSV.split("\n", 1)[1]
    assert read_columns(tmp_path / "b.txt", body, src_column=1, tgt_column=3) == pairs
    assert read_columns(tmp_path / "c.tsv", "eins\tone\tx\n") == [(b"eins", b"one")]


def test_values_of_jsonl_have_keys(tmp_path: Path) -> None:
    columns = {"src_column": "de", "tgt_column": "translation.en"}
    pairs = read_columns(tmp_path / "a.jsonl", JSONL, **columns)
    assert pairs == [(b"ein Hund", b"a dog"), (b"zwei Hunde", b"two dogs")]


@pytest.mark.parametrize(
    ("name", "text", "columns", "named"),
    [
        ("a.tsv", "eins\tone\nzwei\n", {}, "line 2"),
        ("a.tsv", TSV, {"src_column": "de", "tgt_column": "Englisch"}, "'de'.*Deutsch, score"),
        ("a.jsonl", JSONL, {}, "line 1: .*'src'.*de, translation"),
        ("a.jsonl", JSONL, {"src_column": "translation.fr", "tgt_column": "de"}, "line 2"),
        ("a.jsonl", '"de"\n', {}, "line 1: .*'src'"),
        ("a.jsonl", '{"src": 3}\n', {}, "line 1: .*'src'"),
        ("a.jsonl", "{]\n", {}, "line 1: .*JSON"),
        ("a.jsonl", '{"a":' * 100_000, {}, "line 1: .*JSON"),
    ],
)
def test_what_is_missing_is_told_by_line(
    tmp_path: Path, name: str, text: str, columns: dict[str, object], named: str
) -> None:
    with pytest.raises(DataError, match=named):
        read_columns(tmp_path / name, text, **columns)


@pytest.mark.parametrize(
    "columns", [{"src_column": "Deutsch"}, {"src_column": 1, "tgt_column": "Englisch"}]
)
def test_a_name_on_one_side_alone_is_refused(tmp_path: Path, columns: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="names"):
        read_columns(tmp_path / "a.tsv", TSV, **columns)
