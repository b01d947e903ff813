"""Files: read within limits, with hashes that tell when they changed, and JSON."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mt_cli.errors import DataError
from mt_cli.machine.files import (
    check_hashes,
    read_file,
    read_json,
    sha256_bytes,
    sha256_file,
    write_json,
)

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of FIPS 180-2, B.1


def test_file_larger_than_it_may_be_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)  # holes, which take no room
    with pytest.raises(DataError, match=r"file: .*1,000 bytes"):
        read_file(tmp_path / "file", max_bytes=1000)


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")],
    ids=["pipe", "folder", "link to a device"],
)
def test_what_is_no_regular_file_is_refused_unread(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "file")
    with pytest.raises(DataError, match="file: "):
        read_file(tmp_path / "file")


def test_sha256_is_that_of_the_standard(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_bytes(b"abc") == ABC
    assert sha256_file(tmp_path / "abc") == ABC


def test_altered_file_is_named_with_both_hashes(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abd")
    found = hashlib.sha256(b"abd").hexdigest()
    with pytest.raises(DataError, match=f"abc: .*{found[:12]}.*{ABC[:12]}"):
        check_hashes(tmp_path, {"abc": ABC})


@pytest.mark.parametrize("name", ["../abc", "/etc/passwd", "a/../../abc", ".."])
def test_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "folder" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match=r"manifest\.json: "):
        check_hashes(tmp_path / "folder", {name: ABC})


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    value: dict[str, object] = {"name": "Größe", "list": [1, 2.5, None], "inner": {"is_true": True}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1',
        b"",
        b'{"a": "\xff\xfe"}',
        b"[1, 2]",
        b"null",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"format": ' + b"9" * 100_000 + b"}",
    ],
    ids=["truncated", "empty", "not text", "list", "null", "too deep", "too many digits"],
)
def test_damaged_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.json: "):
        read_json(tmp_path / "x.json")


def test_missing_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.json: no such file"):
        read_json(tmp_path / "x.json")
