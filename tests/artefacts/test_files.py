"""Files: whole or not at all, and hashes that tell when they changed."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from mt_cli.artefacts.files import (
    check_hashes,
    sha256_bytes,
    sha256_file,
    write_atomically,
    write_errors_explained,
)
from mt_cli.errors import DataError, ResourceError

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of FIPS 180-2, B.1


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


# Writing


@pytest.mark.parametrize("data", [b"", b"abc\r\n\xff\x00", b"x" * 3_000_000], ids=["empty", "bytes", "large"])
def test_content_is_written_as_given(tmp_path: Path, data: bytes) -> None:
    write_atomically(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == data


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "file", b"x")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"x"


def test_old_content_is_replaced_whole(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"something long")
    write_atomically(tmp_path / "file", b"short")
    assert (tmp_path / "file").read_bytes() == b"short"


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_full_disk_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(ResourceError, match=r"file: cannot be written: no space left on the disk; free some"):
        write_atomically(tmp_path / "file", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


@pytest.mark.parametrize("failed", [None, "x.partial", "x.partial/part"], ids=str)
def test_failed_write_beside_its_place_is_said_of_the_place(failed: str | None) -> None:
    with (
        pytest.raises(ResourceError, match=r"^x: cannot be written: .*; name another place$"),
        write_errors_explained(Path("x"), Path("x.partial")),
    ):
        raise OSError(errno.EACCES, "Permission denied", failed)


def test_failed_read_meanwhile_is_not_said_of_what_is_written() -> None:
    with (
        pytest.raises(PermissionError, match="weights"),
        write_errors_explained(Path("x"), Path("x.partial")),
    ):
        raise OSError(errno.EACCES, "Permission denied", "weights")


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(ResourceError, match=r"file/below: cannot be written: a file stands where a"):
        write_atomically(tmp_path / "file" / "below", b"x")


# Hashes


def test_sha256_is_that_of_the_standard(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_bytes(b"abc") == ABC
    assert sha256_file(tmp_path / "abc") == ABC


def test_unchanged_files_pass(tmp_path: Path) -> None:
    write_atomically(tmp_path / "below" / "abc", b"abc")
    check_hashes(tmp_path, {"below/abc": ABC})


def test_altered_file_is_named_with_both_hashes(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abd")
    found = hashlib.sha256(b"abd").hexdigest()[:12]
    complaint = rf"abc: altered or damaged: sha256 {found}… found, ba7816bf8f01… expected; restore it"
    with pytest.raises(DataError, match=complaint):
        check_hashes(tmp_path, {"abc": ABC})


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"abc: missing, though .*manifest\.json lists it"):
        check_hashes(tmp_path, {"abc": ABC})
