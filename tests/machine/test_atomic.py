"""Files and folders that are old or new and never half, and what a kill has left."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mt_cli.errors import ResourceError
from mt_cli.machine.files import WriteError, built_beside, locked, replaced, write_atomically


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def fail_with(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system answer so to whoever syncs a file."""

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)


@pytest.fixture
def names(tmp_path: Path) -> tuple[str, str]:
    """Temporary names of `file`: of a process that has ended, and of one that lives."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with replaced(tmp_path / "file") as file:
        own = Path(file.name).name
    (tmp_path / "file").unlink()
    own_pid = str(os.getpid())
    return own.replace(own_pid, str(process.pid)), own.replace(own_pid, str(os.getppid()))


# Files


def test_full_disk_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "file", b"old")
    fail_with(errno.ENOSPC, monkeypatch)
    with pytest.raises(ResourceError, match=r"file: .*no space left"):
        write_atomically(tmp_path / "file", b"new")
    assert contents(tmp_path) == {"file": b"old"}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_file_system_that_cannot_sync_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fail_with(number, monkeypatch)
    write_atomically(tmp_path / "file", b"new")
    assert contents(tmp_path) == {"file": b"new"}


def test_what_killed_writers_of_a_file_left_is_removed(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    ended, living = names
    others = ended.replace("file", "other")
    for name in (ended, living, others):
        (tmp_path / name).touch()
    write_atomically(tmp_path / "file", b"new")
    assert set(contents(tmp_path)) == {living, others, "file"}


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(ResourceError, match="file/below: "):
        write_atomically(tmp_path / "file" / "below", b"x")


# Folders


def fill(folder: Path, error: Exception) -> None:
    with built_beside(folder):
        raise error


def test_built_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_atomically(folder / "old", b"x")
    with built_beside(folder) as partial:
        assert not list(partial.iterdir())
        (partial / "new").write_bytes(b"y")
        assert contents(folder) == {"old": b"x"}
    assert contents(folder) == {"new": b"y"}
    assert list(tmp_path.iterdir()) == [folder]


def test_folder_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_atomically(folder / "old", b"x")
    with pytest.raises(ResourceError, match=r"folder: no space left") as caught:
        fill(folder, WriteError(tmp_path / ".folder.partial" / "x", "no space left on the disk"))
    assert ".partial" not in str(caught.value)
    assert contents(folder) == {"old": b"x"}
    assert list(tmp_path.iterdir()) == [folder]


def test_error_of_what_fills_a_folder_is_no_error_of_writing_it(tmp_path: Path) -> None:
    error = OSError(errno.ECONNREFUSED, "Connection refused")
    with pytest.raises(OSError, match="refused") as caught:
        fill(tmp_path / "folder", error)
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


def test_leftovers_beside_a_folder_are_removed(tmp_path: Path) -> None:
    for name in (".ref.old", ".ref.partial", ".other.old", "ref"):
        write_atomically(tmp_path / name / "x", b"1")
    with built_beside(tmp_path / "ref"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.old", "ref"]


def test_whoever_takes_a_folder_puts_back_what_a_kill_has_moved_aside_in_it(tmp_path: Path) -> None:
    # `kept` was moved aside and its successor never came; that of `renewed` did; `.notes.old` is
    # the user's.
    moved = ("eval/.kept.old/x", "eval/.renewed.old/x", "eval/renewed/y", ".half.partial/z")
    for name in (*moved, ".notes.old"):
        write_atomically(tmp_path / "run" / name, b"1")
    with locked(tmp_path / "run"):
        pass
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left - {".run.lock"} == {"run/eval/kept/x", "run/eval/renewed/y", "run/.notes.old"}


def test_files_that_living_processes_write_are_left_to_them(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    for name in names:
        write_atomically(tmp_path / "run" / name, b"1")
    with locked(tmp_path / "run"):
        assert set(contents(tmp_path / "run")) == {names[1]}


def test_folder_that_another_process_fills_is_left_to_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with locked(run / "eval" / "test"), built_beside(run / "eval" / "test") as partial, locked(run):
        assert partial.is_dir()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("old")
    path.chmod(mode)
    write_atomically(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (b"new", mode)
