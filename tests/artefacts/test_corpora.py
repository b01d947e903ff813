"""Corpora: which files are found, fetched and checked, and what their pairs are."""

import gzip
import hashlib
import re
import tracemalloc
from pathlib import Path

import pytest

from mt_cli.config.schema import Config, DataConfig, FilesConfig
from mt_cli.data import corpora
from mt_cli.data import corpora as multi30k
from mt_cli.data.corpora import corpus_hashes, find_corpus, pinned_hashes, read_pairs
from mt_cli.data.prepare import prepare_corpus
from mt_cli.errors import DataError, ResourceError

SPLITS = ("train", "val")
NAMES = ("train.de", "train.en", "val.de", "val.en")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Small files in place of Multi30k's, by name, gzipped, with their hashes pinned."""
    plain = {name: f"eins {name}\nzwei\n".encode() for name in NAMES}
    gzipped = {name: gzip.compress(data, mtime=0) for name, data in plain.items()}
    monkeypatch.setattr(multi30k, "GZIPPED_SHA256", {name: sha256(data) for name, data in gzipped.items()})
    monkeypatch.setattr(multi30k, "PLAIN_SHA256", {name: sha256(data) for name, data in plain.items()})
    return gzipped


@pytest.fixture
def config() -> DataConfig:
    return DataConfig(corpus="multi30k", splits=SPLITS)


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of downloads, empty."""
    monkeypatch.setattr(corpora, "DOWNLOADS", tmp_path / "multi30k")
    return tmp_path / "multi30k"


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
        assert corpus["train"].src == tmp_path / "train.de.gz"
        assert corpus_hashes(corpus) == pinned_hashes(config)

    def test_plain_files_count_as_the_same(
        self, config: DataConfig, pinned: dict[str, bytes], tmp_path: Path
    ) -> None:
        plain = {name: gzip.decompress(data) for name, data in pinned.items()}
        source, whole = write(tmp_path / "plain", plain, suffix=""), Config(data=config)
        assert find_corpus(config, source=source)["val"].tgt == source / "val.en"
        assert prepare_corpus(whole, out=tmp_path / "out", source=source).is_new
        assert not prepare_corpus(whole, out=tmp_path / "out", source=write(tmp_path, pinned)).is_new

    def test_altered_file_is_named_with_both_hashes(
        self, config: DataConfig, pinned: dict[str, bytes], tmp_path: Path
    ) -> None:
        write(tmp_path, pinned | {"val.en": b"altered"})
        expected = rf"val\.en\.gz: sha256 {sha256(b'altered')} found, {sha256(pinned['val.en'])} expected"
        with pytest.raises(DataError, match=expected):
            find_corpus(config, source=tmp_path)

    def test_missing_files_are_listed(
        self, config: DataConfig, pinned: dict[str, bytes], tmp_path: Path
    ) -> None:
        write(tmp_path, pinned)
        (tmp_path / "train.en.gz").unlink()
        (tmp_path / "val.de.gz").unlink()
        message = rf"no such file: {tmp_path}/train\.en\[\.gz\], {tmp_path}/val\.de\[\.gz\]$"
        with pytest.raises(DataError, match=message):
            find_corpus(config, source=tmp_path)

    def test_offline_says_what_to_do(self, config: DataConfig, downloads: Path) -> None:
        with pytest.raises(ResourceError, match=r"4 corpus files .*train\.de\.gz.*--from DIR"):
            find_corpus(config, offline=True)

    def test_only_missing_files_are_fetched(
        self, config: DataConfig, pinned: dict[str, bytes], downloads: Path, monkeypatch: pytest.MonkeyPatch
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
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in multi30k.GZIPPED_SHA256.values())


class TestSample:
    def test_sample_needs_no_folder(self) -> None:
        corpus = find_corpus(DataConfig(), offline=True)
        assert list(corpus) == ["train", "val", "test"]
        assert sum(1 for _ in read_pairs(corpus["test"])) >= 200


class TestFiles:
    @staticmethod
    def config(folder: Path) -> DataConfig:
        files = {name: FilesConfig(src=folder / f"{name}.x", tgt=folder / f"{name}.y") for name in SPLITS}
        return DataConfig(corpus="files", splits=SPLITS, files=files)

    def test_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no such file: .*train\.x, .*val\.y"):
            find_corpus(self.config(tmp_path))


class TestReading:
    @pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
    def test_only_newline_ends_a_line(self, tmp_path: Path, pack: type[bytes]) -> None:
        text = "a\u2028b\x0bc\x85\r\n\nletzte"
        write(tmp_path, {"src": pack(text.encode()), "tgt": pack(b"1\n2\n3\n")}, suffix="")
        pairs = list(read_pairs(FilesConfig(src=tmp_path / "src", tgt=tmp_path / "tgt")))
        assert [src for src, _ in pairs] == ["a\u2028b\x0bc\x85\r\n".encode(), b"\n", b"letzte"]
        assert [tgt for _, tgt in pairs] == [b"1\n", b"2\n", b"3\n"]

    @pytest.mark.parametrize(("num_src", "num_tgt"), [(5, 3), (2, 7), (0, 1)])
    def test_unequal_length_is_told_with_both_counts(
        self, tmp_path: Path, num_src: int, num_tgt: int
    ) -> None:
        write(tmp_path, {"src": b"a\n" * num_src, "tgt": b"b\n" * num_tgt}, suffix="")
        src, tgt = tmp_path / "src", tmp_path / "tgt"
        message = f"{tgt}: {num_tgt} lines, but {src} has {num_src}; the files must align line by line"
        with pytest.raises(DataError, match=re.escape(message)):
            list(read_pairs(FilesConfig(src=src, tgt=tgt)))

    @pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
    def test_line_without_end_is_refused_by_number_and_never_held(
        self, tmp_path: Path, pack: type[bytes]
    ) -> None:
        endless = b"ein Hund\n" + bytes(64 << 20)
        write(tmp_path, {"src": pack(endless), "tgt": b"a dog\n\n"}, suffix="")
        del endless
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match=r"src: line 2: longer than 1,048,576 bytes; expected a sent"):
                list(read_pairs(FilesConfig(src=tmp_path / "src", tgt=tmp_path / "tgt")))
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("cut", [10, -4, 30])
    def test_damaged_gzip_file_is_named(self, tmp_path: Path, cut: int) -> None:
        lines = b"".join(b"%d\n" % i for i in range(1000))
        write(tmp_path, {"src": gzip.compress(lines)[:cut], "tgt": lines}, suffix="")
        with pytest.raises(DataError, match=r"src: damaged gzip file"):
            list(read_pairs(FilesConfig(src=tmp_path / "src", tgt=tmp_path / "tgt")))
