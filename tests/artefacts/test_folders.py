"""Folders: whole or not at all, and found again after a kill."""

import errno
from pathlib import Path

import pytest

from mt_cli.artefacts.files import write_atomically
from mt_cli.artefacts.folders import built_beside
from mt_cli.errors import ResourceError


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


def test_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    link, folder = tmp_path / "link", tmp_path / "elsewhere" / "folder"
    write_atomically(folder / "old", b"x")
    link.symlink_to(folder)
    with built_beside(link) as partial:
        (partial / "new").write_bytes(b"y")
    assert link.is_symlink()
    assert [path.name for path in folder.iterdir()] == ["new"]
