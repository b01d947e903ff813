"""Folders: whole or not at all, and found again after a kill."""

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mt_cli.errors import ResourceError, UsageError
from mt_cli.machine.files import (
    WriteError,
    built_beside,
    is_locked,
    locked,
    replaced,
    write_atomically,
)


def test_built_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_atomically(folder / "old", b"x")
    with built_beside(folder) as partial:
        assert not list(partial.iterdir())
        (partial / "new").write_bytes(b"y")
        assert [path.name for path in folder.iterdir()] == ["old"]
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [folder]


def test_folder_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_atomically(folder / "old", b"x")
    with pytest.raises(ResourceError, match=r"folder: no space left") as caught:
        fill(folder, WriteError(tmp_path / ".folder.partial" / "x", "no space left on the disk"))
    assert ".partial" not in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [folder]


def fill(folder: Path, error: Exception) -> None:
    with built_beside(folder):
        raise error


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
    for name in (
        "eval/.kept.old/x",
        "eval/.renewed.old/x",
        "eval/renewed/y",
        ".half.partial/z",
        ".notes.old",
    ):
        write_atomically(tmp_path / "run" / name, b"1")
    with locked(tmp_path / "run"):
        pass
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left - {".run.lock"} == {"run/eval/kept/x", "run/eval/renewed/y", "run/.notes.old"}


def ended_process() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_files_that_living_processes_write_are_left_to_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with replaced(run / "x") as file:
        own = Path(file.name).name
    (run / "x").unlink()
    own_pid = str(os.getpid())
    theirs = own.replace(own_pid, str(os.getppid()))
    nobodys = own.replace(own_pid, str(ended_process()))
    for name in (theirs, nobodys):
        write_atomically(run / name, b"1")
    with locked(run):
        assert [path.name for path in run.iterdir()] == [theirs]


def test_folder_that_another_process_fills_is_left_to_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with locked(run / "eval" / "test"), built_beside(run / "eval" / "test") as partial, locked(run):
        assert partial.is_dir()


def test_taken_folder_is_refused_by_name_and_is_free_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        assert is_locked(tmp_path / "run")
        refused = pytest.raises(UsageError, match="run: another process")
        with refused, locked(tmp_path / "run", wait_s=0):
            pass
    assert not is_locked(tmp_path / "run")


def test_folder_that_is_soon_free_is_waited_for(tmp_path: Path) -> None:
    is_taken = threading.Event()

    def take() -> None:
        with locked(tmp_path / "run"):
            is_taken.set()
            time.sleep(0.2)

    other = threading.Thread(target=take)
    other.start()
    assert is_taken.wait(60)
    with locked(tmp_path / "run", wait_s=60):
        pass
    other.join()
