"""Text files as people have them: what is read of them, and what is refused by name."""

import gzip
import importlib
import lzma
import os
import re
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mt_cli.data.files import kind_of, named_kind, open_text, read_text, text_lines
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
        b"SQLite ist klein.\n",
        b"\xff\xfd kaputt\n",
    ],
    ids=[
        "CR",
        "CRLF",
        "empty line",
        "CR within",
        "NULs",
        "some NULs",
        "PKW",
        "BZ",
        "SQLite",
        "not UTF-8",
    ],
)
def test_text_that_only_looks_like_something_else_is_read(tmp_path: Path, data: bytes) -> None:
    assert read_text(write(tmp_path / "text", data)) == data


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match=f"^{re.escape(str(path))}: "), open_text(path):
            pass


# Kinds


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.TAB", "tsv"),
        ("a.csv.gz", "csv"),
        ("a.jsonl.zst", "json"),
        ("a.ndjson.xz", "json"),
        ("a.parquet", "parquet"),
    ],
)
def test_a_name_says_what_a_file_is(tmp_path: Path, name: str, expected: str) -> None:
    assert named_kind(Path(name)) == kind_of(tmp_path / name) == expected


@pytest.mark.parametrize("name", ["a.de.gz", "tsv", "a.tsv.de"])
def test_other_names_are_those_of_plain_text(name: str) -> None:
    assert named_kind(Path(name)) is None


def test_the_first_line_says_it_where_the_name_does_not(tmp_path: Path) -> None:
    assert kind_of(write(tmp_path / "corpus", b' {"src": "a"}\n')) == "json"
    assert kind_of(write(tmp_path / "corpus", b"a\tb\n")) == "tsv"
