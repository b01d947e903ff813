"""Files: whole or not at all, and hashes that tell when they changed."""

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mt_cli.errors import DataError, ResourceError
from mt_cli.machine.files import (
    check_hashes,
    read_file,
    replaced,
    sha256_bytes,
    sha256_file,
    write_atomically,
)

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of FIPS 180-2, B.1


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_file_larger_than_it_may_be_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)  # holes, which take no room
    with pytest.raises(DataError, match=r"file: more than 1,000 bytes, which no such file has"):
        read_file(tmp_path / "file", most=1000)


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")],
    ids=["pipe", "folder", "link to a device"],
)
def test_what_is_no_regular_file_is_refused_unread(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "file")
    with pytest.raises(DataError, match="file: not a regular file"):
        read_file(tmp_path / "file")


def test_full_disk_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(
        ResourceError, match=r"file: cannot be written: no space left on the disk; free some"
    ):
        write_atomically(tmp_path / "file", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_file_system_that_cannot_sync_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def cannot_sync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", cannot_sync)
    write_atomically(tmp_path / "file", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"new"}


def test_what_killed_writers_of_a_file_left_is_removed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with replaced(tmp_path / "a[b]") as file:
        own = Path(file.name).name
    ended, living = (own.replace(str(os.getpid()), str(pid)) for pid in (process.pid, os.getppid()))
    others = ended.replace("a[b]", "ab")
    for name in (ended, living, others):
        (tmp_path / name).touch()
    write_atomically(tmp_path / "a[b]", b"new")
    assert {path.name for path in tmp_path.iterdir()} == {living, others, "a[b]"}


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(
        ResourceError, match=r"file/below: cannot be written: a file stands where a"
    ):
        write_atomically(tmp_path / "file" / "below", b"x")


def test_sha256_is_that_of_the_standard(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_bytes(b"abc") == ABC
    assert sha256_file(tmp_path / "abc") == ABC


def test_altered_file_is_named_with_both_hashes(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abd")
    found = hashlib.sha256(b"abd").hexdigest()[:12]
    complaint = (
        rf"abc: altered or damaged: sha256 {found}… found, ba7816bf8f01… expected; restore it"
    )
    with pytest.raises(DataError, match=complaint):
        check_hashes(tmp_path, {"abc": ABC})


@pytest.mark.parametrize("name", ["../abc", "/etc/passwd", "a/../../abc", ".."])
def test_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "folder" / "a").mkdir(parents=True)
    with pytest.raises(
        DataError, match=r"manifest\.json: lists .*, which is no file in its folder"
    ):
        check_hashes(tmp_path / "folder", {name: ABC})
