"""Files and folders that are old or new and never half; locks; hashes; what a kill has left."""

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import (
    built_beside,
    check_hashes,
    read_file,
    read_json,
    replaced,
    sha256_bytes,
    sha256_file,
    write_atomically,
    write_json,
)
from mt_cli.machine.locks import is_locked, locked

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of FIPS 180-2, B.1


def contents(folder: Path) -> dict[str, bytes]:
    """The files below `folder`, by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# Files that are read


def test_file_larger_than_it_may_be_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)  # holes, which take no room
    with pytest.raises(DataError, match=r"file: .*1,000 bytes"):
        read_file(tmp_path / "file", max_bytes=1000)


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: None],
    ids=["pipe", "folder", "link to a device", "missing"],
)
def test_what_is_no_regular_file_is_refused_unread(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "file")
    with pytest.raises(DataError, match="file: "):
        read_file(tmp_path / "file")


def test_sha256_is_that_of_the_standard_and_an_altered_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_bytes(b"abc") == sha256_file(tmp_path / "abc") == ABC
    check_hashes(tmp_path, {"abc": ABC})
    (tmp_path / "abc").write_bytes(b"abd")
    found = hashlib.sha256(b"abd").hexdigest()
    with pytest.raises(DataError, match=f"abc: .*{found[:12]}.*{ABC[:12]}"):
        check_hashes(tmp_path, {"abc": ABC})


@pytest.mark.parametrize("name", ["../abc", "/etc/passwd", "a/../../abc"])
def test_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "folder" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match=r"manifest\.json: "):
        check_hashes(tmp_path / "folder", {name: ABC})


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1',
        b'{"a": "\xff\xfe"}',
        b"[1, 2]",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"format": ' + b"9" * 100_000 + b"}",
    ],
    ids=["truncated", "not text", "list", "too deep", "too many digits"],
)
def test_damaged_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.json: "):
        read_json(tmp_path / "x.json")


# Files that are written


def test_a_path_that_is_not_utf8_comes_back_as_it_was(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"folder": "dd\udcff"})
    assert read_json(tmp_path / "a.json") == {"folder": "dd\udcff"}


def test_full_disk_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    write_atomically(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "file", b"new")
    assert caught.value.filename == str(tmp_path / "file")
    assert contents(tmp_path) == {"file": b"old"}


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.touch(mode=0o600)
    write_atomically(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (b"new", 0o600)


# Folders


def test_built_folder_replaces_the_old_one_whole_with_what_kills_left(tmp_path: Path) -> None:
    for name in ("folder/old", ".folder.old/x", ".folder.partial/x"):
        write_atomically(tmp_path / name, b"x")
    with built_beside(tmp_path / "folder") as partial:
        assert contents(partial) == {}
        (partial / "new").write_bytes(b"y")
        assert contents(tmp_path / "folder") == {"old": b"x"}
    assert contents(tmp_path) == {"folder/new": b"y"}


@pytest.mark.parametrize(
    ("failed", "named"), [(".folder.partial/x", "folder"), ("corpus.de", "corpus.de")]
)
def test_folder_that_fails_leaves_the_old_one_and_is_named(
    tmp_path: Path, failed: str, named: str
) -> None:
    write_atomically(tmp_path / "folder" / "old", b"x")
    error = OSError(errno.EIO, "broken", str(tmp_path / failed))
    with pytest.raises(OSError, match="broken") as caught, built_beside(tmp_path / "folder"):
        raise error
    assert caught.value.filename == str(tmp_path / named)
    assert contents(tmp_path) == {"folder/old": b"x"}


# What a kill has left


def test_whoever_takes_a_folder_puts_back_what_a_kill_has_moved_aside_in_it(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with replaced(tmp_path / "file") as file:
        own = Path(file.name).name
    ended, living = (own.replace(str(os.getpid()), str(n)) for n in (process.pid, os.getppid()))
    # `kept` was moved aside and its successor never came; that of `renewed` did; `.notes.old` is
    # the user's.
    moved = ("eval/.kept.old/x", "eval/.renewed.old/x", "eval/renewed/y", ".half.partial/z")
    for name in (*moved, ".notes.old", ended, living):
        write_atomically(tmp_path / "run" / name, b"1")
    with locked(tmp_path / "run"):
        pass
    left = {"eval/kept/x", "eval/renewed/y", ".notes.old", living}
    assert set(contents(tmp_path / "run")) == left


def test_folder_that_another_process_fills_is_left_to_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with locked(run / "eval" / "test"), built_beside(run / "eval" / "test") as partial, locked(run):
        assert partial.is_dir()


# Locks


def test_taken_folder_is_refused_by_name_or_waited_for(tmp_path: Path) -> None:
    taken = []

    def take() -> None:
        with locked(tmp_path / "run", wait_s=60):
            taken.append("run")

    with locked(tmp_path / "run"):
        assert is_locked(tmp_path / "run")
        with pytest.raises(UsageError, match="run: "), locked(tmp_path / "run", wait_s=0):
            pass
        other = threading.Thread(target=take)
        other.start()
        time.sleep(0.1)
        assert taken == []
    other.join(60)
    assert taken == ["run"]
