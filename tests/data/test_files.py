"""Text files as people have them: what is read of them, and what is refused by name."""

import gzip
import importlib
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mt_cli.data.text_files import kind_of, read_text, text_lines
from mt_cli.errors import DataError

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
zstd = importlib.import_module(ZSTD)
Pack = Callable[[bytes], bytes]
EMPTY_FRAME = bytes.fromhex("502a4d18 04000000 01020304")
"""Without text; pzstd begins with it."""


def pack_zst(data: bytes) -> bytes:
    """As the command zstd packs, which adds a checksum, behind an empty frame."""
    options = {zstd.CompressionParameter.checksum_flag: 1}
    return EMPTY_FRAME + zstd.compress(data, options=options)


PACKINGS: dict[str, Pack] = {"gz": gzip.compress, "zst": pack_zst, "xz": lzma.compress}
TEXT = "Ein Hund\r\n\nder\u2028Ball \x00\nein\rMann\nletzte"
LINES = [b"Ein Hund\r\n", b"\n", "der\u2028Ball \x00\n".encode(), b"ein\rMann\n", b"letzte"]
BOM = b"\xef\xbb\xbf"


def write(folder: Path, data: bytes) -> Path:
    path = folder / "corpus.de"  # whatever it is packed with
    path.write_bytes(data)
    return path


def list_lines(path: Path) -> list[bytes]:
    return list(text_lines(path))


each_reader = pytest.mark.parametrize("read", [read_text, list_lines], ids=["text", "lines"])


@pytest.mark.parametrize("pack", [bytes, *PACKINGS.values()], ids=["plain", *PACKINGS])
@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ([TEXT.encode()], LINES),
        ([b"Ein Hund\nzwei ", b"Hunde\n"], [b"Ein Hund\n", b"zwei Hunde\n"]),
        ([BOM + b"Hund\n" + BOM + b"Ball\n"], [b"Hund\n", BOM + b"Ball\n"]),
        ([b""], []),
    ],
    ids=["lines", "two files in one", "byte order mark", "nothing"],
)
def test_a_packed_file_has_the_lines_of_the_plain_one(
    tmp_path: Path, pack: Pack, parts: list[bytes], lines: list[bytes]
) -> None:
    path = write(tmp_path, b"".join(map(pack, parts)))
    assert list_lines(path) == lines
    assert read_text(path) == b"".join(lines)


def cut(packed: bytes) -> bytes:
    return packed[: len(packed) // 2]


def with_a_wrong_byte(packed: bytes) -> bytes:
    middle = len(packed) // 2
    return packed[:middle] + bytes([packed[middle] ^ 0x55]) + packed[middle + 1 :]


@pytest.mark.parametrize("damage", [cut, with_a_wrong_byte])
@pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS)
def test_a_damaged_packed_file_is_named(tmp_path: Path, pack: Pack, damage: Pack) -> None:
    packed = damage(pack(b"".join(b"%d Hunde\n" % i for i in range(4000))))
    with pytest.raises(DataError, match=r"^\S*/corpus\.de: "):
        read_text(write(tmp_path, packed))


# No text, or text of another kind

UTF_16 = "Ein Hund bellt laut im Garten.\n" * 4
REFUSED = {
    "UTF-16 of Windows": UTF_16.encode("utf-16"),
    "UTF-16 without a mark": UTF_16.encode("utf-16-le"),
    "zip": b"PK\x03\x04\x14\x00\x00\x00\x08\x00",
    "packed zip": gzip.compress(b"PK\x03\x04\x14\x00\x00\x00\x08\x00"),
    "packed twice": gzip.compress(gzip.compress(b"Ein Hund\n")),
    "PDF": b"%PDF-1.7\n",
    "CR alone": b"Ein Hund\rzwei Hunde\r",
    "NUL bytes": bytes(1000),
}
READ = {
    "CR": b"Hund\r",
    "CR within": b"ein\rHund\nzwei\n",
    "some NULs": b"Hund" * 30 + bytes(40) + b"\n",
    "PKW": b"PKW\n",
    "not UTF-8": b"\xff\xfd kaputt\n",
}


@each_reader
@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_no_text_in_utf_8_is_refused_by_name(
    tmp_path: Path, data: bytes, read: Callable[[Path], object]
) -> None:
    with pytest.raises(DataError, match=r"^\S*/corpus\.de: .*UTF-8"):
        read(write(tmp_path, data))


@pytest.mark.parametrize("data", READ.values(), ids=READ)
def test_text_that_only_looks_like_something_else_is_read(tmp_path: Path, data: bytes) -> None:
    assert read_text(write(tmp_path, data)) == data


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("a.TAB", b"", "tsv"),
        ("a.csv.gz", b"", "csv"),
        ("a.jsonl.zst", b"", "json"),
        ("a.tsv.de", b' {"src": "a"}\n', "json"),
        ("corpus", b"a\tb\n", "tsv"),
    ],
)
def test_a_name_says_what_a_file_is_or_else_its_first_line(
    tmp_path: Path, name: str, line: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(line)
    assert kind_of(path) == expected
