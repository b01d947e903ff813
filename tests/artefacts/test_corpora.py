"""Corpora: which files are found, fetched and checked, and what their pairs are."""

import gzip
import hashlib
import importlib
import io
import re
import sys
import tracemalloc
from pathlib import Path

import pytest

from mt_cli.config.schema import Config, DataConfig, FilesConfig
from mt_cli.data import corpora
from mt_cli.data import corpora as multi30k
from mt_cli.data.corpora import ParallelText, corpus_hashes, find_corpus, pinned_hashes, read_pairs
from mt_cli.data.prepare import prepare_corpus
from mt_cli.errors import ConfigError, DataError, ResourceError

zstd = importlib.import_module(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
)
SPLITS = ("train", "val")
NAMES = ("train.de", "train.en", "val.de", "val.en")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Small files in place of Multi30k's, by name, gzipped, with their hashes pinned."""
    plain = {name: f"eins {name}\nzwei\n".encode() for name in NAMES}
    gzipped = {name: gzip.compress(data, mtime=0) for name, data in plain.items()}
    monkeypatch.setattr(
        multi30k, "GZIPPED_SHA256", {name: sha256(data) for name, data in gzipped.items()}
    )
    monkeypatch.setattr(
        multi30k, "PLAIN_SHA256", {name: sha256(data) for name, data in plain.items()}
    )
    return gzipped


@pytest.fixture
def config() -> DataConfig:
    return DataConfig(corpus="multi30k", splits=SPLITS)


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of downloads, empty."""
    monkeypatch.setattr(corpora, "DOWNLOADS", tmp_path / "multi30k")
    return tmp_path / "multi30k"


def zst(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zstd.ZstdFile(packed, "w") as file:
        file.write(data)
    return packed.getvalue()


def zst_that_skips(data: bytes) -> bytes:
    """As pzstd writes it: a frame without text comes first."""
    return bytes.fromhex("502a4d18 04000000 01020304") + zst(data)


def pairs_of(src: Path, tgt: Path, **columns: object) -> ParallelText:
    return ParallelText.of(FilesConfig.model_validate({"src": src, "tgt": tgt, **columns}))


def write(folder: Path, files: dict[str, bytes], *, suffix: str = ".gz") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / f"{name}{suffix}").write_bytes(data)
    return folder


class TestMulti30k:
    def test_files_come_from_a_folder(
        self, config: DataConfig, pinned: dict[str, bytes], tmp_path: Path
    ) -> None:
        corpus = find_corpus(config, source=write(tmp_path, pinned))
        assert list(corpus) == ["train", "val"]
        assert corpus["train"].src.paths == (tmp_path / "train.de.gz",)
        assert corpus_hashes(corpus) == pinned_hashes(config, {})

    def test_plain_files_count_as_the_same(
        self, config: DataConfig, pinned: dict[str, bytes], tmp_path: Path
    ) -> None:
        plain = {name: gzip.decompress(data) for name, data in pinned.items()}
        source, whole = write(tmp_path / "plain", plain, suffix=""), Config(data=config)
        assert find_corpus(config, source=source)["val"].tgt.paths == (source / "val.en",)
        assert prepare_corpus(whole, out=tmp_path / "out", source=source).is_new
        assert not prepare_corpus(
            whole, out=tmp_path / "out", source=write(tmp_path, pinned)
        ).is_new

    def test_altered_file_is_named_with_both_hashes(
        self, config: DataConfig, pinned: dict[str, bytes], tmp_path: Path
    ) -> None:
        write(tmp_path, pinned | {"val.en": b"altered"})
        expected = (
            rf"val\.en\.gz: sha256 {sha256(b'altered')} found, {sha256(pinned['val.en'])} expected"
        )
        with pytest.raises(DataError, match=expected):
            find_corpus(config, source=tmp_path)

    def test_missing_files_are_listed(
        self, config: DataConfig, pinned: dict[str, bytes], tmp_path: Path
    ) -> None:
        write(tmp_path, pinned)
        (tmp_path / "train.en.gz").unlink()
        (tmp_path / "val.de.gz").unlink()
        message = rf"no such file: {tmp_path}/train\.en\[\.gz\], {tmp_path}/val\.de\[\.gz\]"
        with pytest.raises(DataError, match=message):
            find_corpus(config, source=tmp_path)

    def test_offline_says_what_to_do(self, config: DataConfig, downloads: Path) -> None:
        with pytest.raises(ResourceError, match=r"4 corpus files .*train\.de\.gz.*--from DIR"):
            find_corpus(config, offline=True)

    def test_only_missing_files_are_fetched(
        self,
        config: DataConfig,
        pinned: dict[str, bytes],
        downloads: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        fetched: list[str] = []

        def fake_download(url: str, path: Path, *, sha256: str, most: int) -> None:
            fetched.append(f"{url} {sha256} {most}")
            path.write_bytes(pinned[path.stem])

        monkeypatch.setattr(corpora, "download", fake_download)
        monkeypatch.setattr(multi30k, "BASE_URL", "http://127.0.0.1/raw")
        write(downloads, {name: pinned[name] for name in NAMES[:3]})
        find_corpus(config)
        assert fetched == [f"http://127.0.0.1/raw/val.en.gz {sha256(pinned['val.en'])} {1 << 20}"]

    def test_every_split_is_pinned_in_both_languages(self) -> None:
        tests = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
        expected = {f"{split}.{lang}" for split in (*SPLITS, *tests) for lang in ("de", "en")}
        assert set(multi30k.GZIPPED_SHA256) == expected
        assert set(multi30k.PLAIN_SHA256) < expected
        assert all(
            re.fullmatch("[0-9a-f]{64}", digest) for digest in multi30k.GZIPPED_SHA256.values()
        )


class TestSample:
    def test_sample_needs_no_folder(self) -> None:
        corpus = find_corpus(DataConfig(), offline=True)
        assert list(corpus) == ["train", "val", "test"]
        assert sum(1 for _ in read_pairs(corpus["test"])) >= 200


class TestFiles:
    @staticmethod
    def config(folder: Path) -> DataConfig:
        files = {
            name: FilesConfig(src=(folder / f"{name}.x",), tgt=(folder / f"{name}.y",))
            for name in SPLITS
        }
        return DataConfig(corpus="files", splits=SPLITS, files=files)

    def test_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no such file: .*train\.x, .*val\.y"):
            find_corpus(self.config(tmp_path))


class TestReading:
    @pytest.mark.parametrize(
        "pack",
        [bytes, gzip.compress, zst, zst_that_skips],
        ids=["plain", "gzipped", "zst", "pzstd"],
    )
    def test_only_newline_ends_a_line(self, tmp_path: Path, pack: type[bytes]) -> None:
        text = "a\u2028b\x0bc\x85\r\n\nletzte"
        write(tmp_path, {"src": pack(text.encode()), "tgt": pack(b"1\n2\n3\n")}, suffix="")
        pairs = list(read_pairs(pairs_of(tmp_path / "src", tmp_path / "tgt")))
        assert [src for src, _ in pairs] == ["a\u2028b\x0bc\x85\r\n".encode(), b"\n", b"letzte"]
        assert [tgt for _, tgt in pairs] == [b"1\n", b"2\n", b"3\n"]

    @pytest.mark.parametrize(("num_src", "num_tgt"), [(5, 3), (2, 7), (0, 1)])
    def test_unequal_length_is_told_with_both_counts(
        self, tmp_path: Path, num_src: int, num_tgt: int
    ) -> None:
        write(tmp_path, {"src": b"a\n" * num_src, "tgt": b"b\n" * num_tgt}, suffix="")
        src, tgt = tmp_path / "src", tmp_path / "tgt"
        message = (
            f"{tgt}: {num_tgt} lines, but {src} has {num_src}; the files must align line by line"
        )
        with pytest.raises(DataError, match=re.escape(message)):
            list(read_pairs(pairs_of(src, tgt)))

    @pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
    def test_line_without_end_is_refused_by_number_and_never_held(
        self, tmp_path: Path, pack: type[bytes]
    ) -> None:
        endless = b"ein Hund\n" + b"x" * (64 << 20)
        write(tmp_path, {"src": pack(endless), "tgt": b"a dog\n\n"}, suffix="")
        del endless
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match=r"src: line 2: longer than 1,048,576 bytes"):
                list(read_pairs(pairs_of(tmp_path / "src", tmp_path / "tgt")))
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("pack", [gzip.compress, zst], ids=["gzipped", "zst"])
    @pytest.mark.parametrize("cut", [10, -4, 30])
    def test_damaged_packed_file_is_named(
        self, tmp_path: Path, cut: int, pack: type[bytes]
    ) -> None:
        lines = b"".join(b"%d\n" % i for i in range(1000))
        write(tmp_path, {"src": pack(lines)[:cut], "tgt": lines}, suffix="")
        with pytest.raises(DataError, match=r"src: a damaged packed file"):
            list(read_pairs(pairs_of(tmp_path / "src", tmp_path / "tgt")))


TSV = "Deutsch\tscore\tEnglisch\nein Hund\t0.9\ta dog\n\nzwei\t\ttwo\r\n"
JSONL = (
    '{"de": "ein Hund", "translation": {"en": "a dog", "fr": "un chien"}}\n'
    '{"de": "zwei\\nHunde", "translation": {"en": "two dogs"}}'
)


class TestColumns:
    """.tsv and .jsonl files, which hold both sides."""

    @staticmethod
    def read(path: Path, text: str, **columns: object) -> list[tuple[bytes, bytes]]:
        path.write_text(text, encoding="utf-8", newline="")
        return list(read_pairs(pairs_of(path, path, **columns)))

    def test_columns_of_a_tsv_have_names_or_numbers(self, tmp_path: Path) -> None:
        pairs = [(b"ein Hund", b"a dog"), (b"", b""), (b"zwei", b"two")]
        named = self.read(tmp_path / "a.tsv", TSV, src_column="Deutsch", tgt_column="Englisch")
        assert named == pairs
        body = TSV.split("\n", 1)[1]
        assert self.read(tmp_path / "b.txt", body, src_column=1, tgt_column=3) == pairs
        assert self.read(tmp_path / "c.tsv", "eins\tone\tx\n") == [(b"eins", b"one")]

    def test_values_of_jsonl_have_keys(self, tmp_path: Path) -> None:
        pairs = self.read(tmp_path / "a.jsonl", JSONL, src_column="de", tgt_column="translation.en")
        assert pairs == [(b"ein Hund", b"a dog"), (b"zwei Hunde", b"two dogs")]

    @pytest.mark.parametrize(
        ("name", "text", "columns", "message"),
        [
            ("a.tsv", "eins\tone\nzwei\n", {}, r"a\.tsv: line 2: expected .* 2 columns, found 1"),
            (
                "a.tsv",
                TSV,
                {"src_column": "de", "tgt_column": "Englisch"},
                r"no column is called 'de'.*: Deutsch, score, Englisch",
            ),
            ("a.jsonl", JSONL, {}, r"line 1: no key 'src'; it has de, translation"),
            (
                "a.jsonl",
                JSONL,
                {"src_column": "translation.fr", "tgt_column": "de"},
                "line 2: no key",
            ),
            ("a.jsonl", '"de"\n', {}, r"line 1: no key 'src'; it has no object"),
            ("a.jsonl", '["de"]\n', {}, r"a\.jsonl: a JSON array"),
            ("a.jsonl", '{"src": null}\n', {}, "line 1: what is under the key 'src' is no text"),
            ("a.jsonl", "{]\n", {}, "line 1: not JSON"),
            ("a.jsonl", '{"a":' * 100_000, {}, "line 1: not JSON"),
        ],
    )
    def test_what_is_missing_is_told_by_line(
        self, tmp_path: Path, name: str, text: str, columns: dict[str, object], message: str
    ) -> None:
        with pytest.raises(DataError, match=message):
            self.read(tmp_path / name, text, **columns)

    @pytest.mark.parametrize(
        "columns", [{"src_column": "Deutsch"}, {"src_column": 1, "tgt_column": "Englisch"}]
    )
    def test_a_name_on_one_side_alone_is_refused(
        self, tmp_path: Path, columns: dict[str, object]
    ) -> None:
        with pytest.raises(ConfigError, match="must both be names of its first line, or neither"):
            self.read(tmp_path / "a.tsv", TSV, **columns)

    def test_several_files_follow_each_other(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {"1.de": b"eins\nzwei", "2.de": b"drei\n", "en": b"one\ntwo\nthree\n"},
            suffix="",
        )
        files = {"src": [tmp_path / "1.de", tmp_path / "2.de"], "tgt": tmp_path / "en"}
        corpus = {"train": ParallelText.of(FilesConfig.model_validate(files))}
        assert [src.strip() for src, _ in read_pairs(corpus["train"])] == [
            b"eins",
            b"zwei",
            b"drei",
        ]
        assert list(corpus_hashes(corpus)) == ["train.src", "train.src.2", "train.tgt"]
