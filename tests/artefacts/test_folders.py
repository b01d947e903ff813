"""Folders: whole or not at all, and found again after a kill."""

import errno
from pathlib import Path

import pytest

from mt_cli.errors import ResourceError
from mt_cli.machine.files import built_beside, locked, write_atomically


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


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
    with pytest.raises(ResourceError, match=r"folder: cannot be written: no space"), built_beside(folder):
        full_disk(0)
    assert [path.name for path in folder.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [folder]


def test_leftovers_beside_a_folder_are_removed(tmp_path: Path) -> None:
    for name in (".ref.old", ".ref.partial", ".other.old", "ref"):
        write_atomically(tmp_path / name / "x", b"1")
    with built_beside(tmp_path / "ref"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.old", "ref"]


def test_whoever_takes_a_folder_puts_back_what_a_kill_has_moved_aside_in_it(tmp_path: Path) -> None:
    # `kept` was moved aside and its successor never came; that of `renewed` did; `.notes.old` is the user's.
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
