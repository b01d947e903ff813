"""Corpora: which files are found, and what their pairs are."""

import gzip
import tracemalloc
from pathlib import Path

import pytest
from small import config_of, text_in

from mt_cli.config.schema import DataConfig, FilesConfig
from mt_cli.data.corpora import ParallelText, RawPair, corpus_hashes, find_corpus
from mt_cli.errors import ConfigError, DataError


def read(folder: Path, src: bytes, tgt: bytes) -> list[RawPair]:
    (folder / "src").write_bytes(src)
    (folder / "tgt").write_bytes(tgt)
    return list(text_in(folder / "src", folder / "tgt").pairs())


def test_missing_files_are_named(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"train": [("a", "b")], "val": [("a", "b")]})
    (tmp_path / "train.src").unlink()
    (tmp_path / "val.tgt").unlink()
    with pytest.raises(DataError, match=r"train\.src.*val\.tgt"):
        find_corpus(config.data)


@pytest.mark.parametrize(("num_src", "num_tgt"), [(5, 3), (0, 1)])
def test_unequal_length_is_told_with_both_counts(
    tmp_path: Path, num_src: int, num_tgt: int
) -> None:
    with pytest.raises(DataError, match=rf"tgt: {num_tgt} .*src has {num_src};"):
        read(tmp_path, b"a\n" * num_src, b"b\n" * num_tgt)


def test_line_without_end_is_refused_by_number_and_never_held(tmp_path: Path) -> None:
    packed = gzip.compress(b"ein Hund\n" + b"x" * (24 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"src: line 2: "):
            read(tmp_path, packed, b"a dog\n\n")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_several_files_follow_each_other(tmp_path: Path) -> None:
    one, two, english = tmp_path / "1.de", tmp_path / "2.de", tmp_path / "en"
    one.write_bytes(b"eins\nzwei")
    two.write_bytes(b"drei\n")
    english.write_bytes(b"one\ntwo\nthree\n")
    text = text_in([one, two], english)
    assert [src.strip() for src, _ in text.pairs()] == [b"eins", b"zwei", b"drei"]
    assert list(corpus_hashes({"train": text})) == ["train.src", "train.src.2", "train.tgt"]


# Files of columns, which hold both sides

TSV = "Deutsch\tscore\tEnglisch\nein Hund\t0.9\ta dog\n\nzwei\t\ttwo\r\n"
JSONL = (
    '{"de": "ein Hund", "translation": {"en": "a dog", "fr": "un chien"}}\n'
    '{"de": "zwei\\nHunde", "translation": {"en": "two dogs"}}'
)
TMX = (
    '<tmx><body><tu><tuv lang="de"><seg>eins</seg></tuv>'
    '<tuv lang="en"><seg>one</seg></tuv></tu></body></tmx>'
)
TEXTS = [(b"ein Hund", b"a dog"), (b"", b""), (b"zwei", b"two")]
Columns = tuple[int | str | None, int | str | None]
NONE = (None, None)


def read_columns(path: Path, text: str, columns: Columns) -> list[RawPair]:
    path.write_text(text, encoding="utf-8", newline="")
    src, tgt = columns
    return list(text_in(path, path, src_column=src, tgt_column=tgt).pairs())


@pytest.mark.parametrize(
    ("name", "text", "columns", "expected"),
    [
        ("a.tsv", TSV, ("Deutsch", "Englisch"), TEXTS),
        ("a.txt", TSV.split("\n", 1)[1], (1, 3), TEXTS),
        ("a.tsv", "eins\tone\tx\n", NONE, [(b"eins", b"one")]),
        ("a.tmx", TMX, NONE, [(b"eins", b"one")]),
        ("a.jsonl", JSONL, ("de", "translation.en"), [TEXTS[0], (b"zwei Hunde", b"two dogs")]),
    ],
    ids=["names", "numbers", "the first two", "memory", "keys"],
)
def test_columns_have_names_or_numbers(
    tmp_path: Path, name: str, text: str, columns: Columns, expected: list[RawPair]
) -> None:
    assert read_columns(tmp_path / name, text, columns) == expected


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "eins\tone\nzwei\n", NONE, "line 2"),
        ("a.tsv", TSV, ("de", "Englisch"), "'de'.*Deutsch, score"),
        ("a.jsonl", JSONL, NONE, "line 1: .*'src'.*de, translation"),
        ("a.jsonl", '{"src": 3}\n', NONE, "line 1: .*'src'"),
        ("a.jsonl", '{"a":' * 100_000, NONE, "line 1: .*JSON"),
    ],
    ids=["cell", "column", "keys", "number", "depth"],
)
def test_what_is_missing_is_told_by_line(
    tmp_path: Path, name: str, text: str, columns: Columns, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_columns(tmp_path / name, text, columns)


def test_a_name_on_one_side_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names"):
        read_columns(tmp_path / "a.tsv", TSV, ("Deutsch", None))


# Many files


def many(folder: Path, texts: dict[str, str]) -> list[RawPair]:
    """The training pairs of `*.de` and `*.en` in `folder`, which hold `texts`."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    both = {"src": str(folder / "*.de"), "tgt": str(folder / "?.en")}
    data = {"corpus": "files", "splits": ["train", "val"], "files": {"train": both, "val": both}}
    return list(find_corpus(DataConfig.model_validate(data))["train"].pairs())


def test_a_pattern_stands_for_files_in_order(tmp_path: Path) -> None:
    texts = {"b.de": "drei\n", "a.de": "eins\nzwei\n", "a.en": "one\ntwo\n", "b.en": "three\n"}
    assert [src for src, _ in many(tmp_path, texts)] == [b"eins\n", b"zwei\n", b"drei\n"]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"a.en": "one\n"}, "b.de is paired with no file"),
        ({"a.en": "one\n", "c.en": "two\n"}, "b.de is paired with .*c.en"),
        ({}, r"no such file: .*\?.en"),
        ({"a.en": "one\ntwo\n", "b.en": ""}, "a.en: 2 lines, but .*a.de has 1"),
    ],
    ids=["one more", "another name", "none", "lines"],
)
def test_files_that_do_not_match_are_told(
    tmp_path: Path, targets: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        many(tmp_path, {"a.de": "eins\n", "b.de": "zwei\n", **targets})


def test_a_line_of_several_files_is_named_by_its_own(tmp_path: Path) -> None:
    for name, num_lines in (("a", 2), ("b", 3)):
        for lang in ("de", "en"):
            tmp_path.joinpath(f"{name}.{lang}").write_text(f"{name}\n" * num_lines)
    config = FilesConfig(src=(tmp_path / "*.de",), tgt=(tmp_path / "*.en",))
    text = ParallelText.of(config)
    names = [text.place_of(line) for line in (1, 2, 3, 5)]
    places = [(name.split()[0], name.count("a.de"), name.count("b.en")) for name in names]
    assert places == [("1", 1, 0), ("2", 1, 0), ("1", 0, 1), ("3", 0, 1)]
    one = ParallelText.of(FilesConfig(src=(tmp_path / "a.de",), tgt=(tmp_path / "a.en",)))
    assert one.place_of(2) == "2"
