"""Folders: whole or not at all, and found again after a kill."""

import ctypes
import errno
import os
from pathlib import Path

import pytest

from mt_cli.artefacts import folders
from mt_cli.artefacts.exchange import exchange
from mt_cli.artefacts.files import write_atomically
from mt_cli.artefacts.folders import built_beside, check_replaceable, recover, remove
from mt_cli.errors import ResourceError, UsageError

BEYOND_ANY_PID = 9_999_999_999


def system_can_exchange(folder: Path) -> bool:
    """Whether the call itself exchanges two files in `folder`, which are left there."""
    for name in ("x", "y"):
        (folder / name).touch()
    try:
        call = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    here, exchanging = -100, ctypes.c_uint(2)  # AT_FDCWD and RENAME_EXCHANGE
    return bool(call(here, os.fsencode(folder / "x"), here, os.fsencode(folder / "y"), exchanging) == 0)


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


def test_folder_above_that_cannot_be_made_is_said_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "above").touch()
    folder = tmp_path / "above" / "below" / "folder"
    with pytest.raises(ResourceError, match=r"below/folder: cannot be written"), built_beside(folder):
        pass


def test_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    link, folder = tmp_path / "link", tmp_path / "elsewhere" / "folder"
    write_atomically(folder / "old", b"x")
    link.symlink_to(folder)
    with built_beside(link) as partial:
        (partial / "new").write_bytes(b"y")
    assert link.is_symlink()
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_name_is_never_without_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trial", "folder"):
        (tmp_path / name).mkdir()
    if not system_can_exchange(tmp_path / "trial"):
        pytest.skip("this file system cannot exchange two folders")
    (tmp_path / "folder" / "old").touch()

    def never(path: Path, target: Path) -> Path:
        raise AssertionError("a kill after this rename would leave nothing at the name")

    monkeypatch.setattr(Path, "rename", never)
    with built_beside(tmp_path / "folder") as partial:
        (partial / "new").touch()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "trial"]


def test_exchange_swaps_two_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    can = system_can_exchange(tmp_path)
    assert exchange(tmp_path / "a", tmp_path / "b") is can
    expected = ("2", "1") if can else ("1", "2")
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == expected


def test_exchange_with_nothing_is_told_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    with pytest.raises(FileNotFoundError, match=r"'.*/b'$"):
        exchange(tmp_path / "a", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_disk_that_fails_the_exchange_is_told_and_not_what_fails_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "ref" / "x", b"dear")

    def fail(_: Path, other: Path) -> bool:
        monkeypatch.setattr(Path, "rename", full_disk)
        raise OSError(errno.EIO, "Input/output error", str(other))

    monkeypatch.setattr(folders, "exchange", fail)
    complaint = r"ref: cannot be written: Input/output error"
    with pytest.raises(ResourceError, match=complaint), built_beside(tmp_path / "ref"):
        pass
    assert (tmp_path / "ref" / "x").read_bytes() == b"dear"


def test_folder_that_was_moved_aside_by_a_killed_process_is_put_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_atomically(tmp_path / ".ref.old" / "x", b"dear")
    recover(tmp_path / "ref")
    assert (tmp_path / "ref" / "x").read_bytes() == b"dear"
    assert [path.name for path in tmp_path.iterdir()] == ["ref"]
    assert "ref: put back; a process was killed while it replaced this folder" in caplog.text


def test_failure_after_such_a_kill_loses_nothing(tmp_path: Path) -> None:
    write_atomically(tmp_path / ".ref.old" / "x", b"dear")
    with pytest.raises(ResourceError), built_beside(tmp_path / "ref"):
        full_disk(0)
    assert (tmp_path / "ref" / "x").read_bytes() == b"dear"


def test_leftovers_beside_a_folder_are_removed(tmp_path: Path) -> None:
    for name in (".ref.old", f".ref.{BEYOND_ANY_PID}.partial", ".other.old", "ref"):
        write_atomically(tmp_path / name / "x", b"1")
    with built_beside(tmp_path / "ref"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.old", "ref"]


def test_folder_that_one_is_in_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path(), tmp_path, tmp_path.parent):
        with pytest.raises(UsageError, match=r"take the place of the one you are in; name another"):
            check_replaceable(folder, is_wanted=True, own_files=(), kind="any folder", ways_out="")


def test_removing_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    write_atomically(tmp_path / "real" / "x", b"1")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["real"]


def test_the_root_of_all_folders_has_nothing_to_put_back() -> None:
    recover(Path("/"))
