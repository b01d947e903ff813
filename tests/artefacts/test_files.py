"""Files: whole or not at all, and hashes that tell when they changed."""

import errno
import hashlib
import io
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import IMPOSTORS, replace_by

from mt_cli.artefacts import leftovers
from mt_cli.artefacts.files import (
    check_hashes,
    open_to_append,
    read_file,
    replaced,
    sha256_bytes,
    sha256_file,
    write_atomically,
)
from mt_cli.artefacts.leftovers import partial_name
from mt_cli.artefacts.write_errors import write_errors_explained
from mt_cli.errors import DataError, ResourceError

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of FIPS 180-2, B.1
BEYOND_ANY_PID = 9_999_999_999


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("read", [sha256_file, read_file], ids=["hash", "content"])
def test_file_larger_than_it_may_be_is_refused_unread(tmp_path: Path, read: Callable[..., object]) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)  # holes, which take no room
    with pytest.raises(DataError, match=r"file: more than 1,000 bytes, which no such file has"):
        read(tmp_path / "file", most=1000)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../file", "a/../file", "/file", "a//file", "a/", "a\0b", "\ud800", "x" * 256, "ß" * 128],
    ids=ascii,
)
def test_name_that_no_file_below_a_folder_has_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with pytest.raises(
        DataError, match=r"manifest\.json: lists '.*', which is no file in its folder"
    ) as found:
        check_hashes(tmp_path / "inner", {name: ABC})
    assert len(str(found.value)) < 1000


def test_longest_name_may_be_listed(tmp_path: Path) -> None:
    name = "x" * 255
    (tmp_path / name).write_bytes(b"abc")
    check_hashes(tmp_path, {name: ABC})


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


def test_file_that_cannot_be_written_in_a_partial_is_said_of_the_place(tmp_path: Path) -> None:
    (tmp_path / "x.partial").write_bytes(b"in the way")
    with (
        pytest.raises(ResourceError, match=r"^x: cannot be written: a file stands where a folder is needed"),
        write_errors_explained(Path("x"), tmp_path / "x.partial"),
    ):
        write_atomically(tmp_path / "x.partial" / "config.toml", b"x")


def test_first_of_several_failures_is_the_one_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.EIO, "Input/output error")]

    class BrokenFile(io.FileIO):
        def write(self, data: object, /) -> int:
            raise failures.pop() if failures else OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", lambda fd, mode: io.BufferedWriter(BrokenFile(fd, mode)))
    with pytest.raises(ResourceError, match=r"file: cannot be written: Input/output error"):
        write_atomically(tmp_path / "file", b"x")


def test_closing_hides_no_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullFile(io.FileIO):
        def write(self, data: object, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    def fill() -> None:
        with replaced(tmp_path / "file") as file:
            file.write(b"x")
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fdopen", lambda fd, mode: io.BufferedWriter(FullFile(fd, mode)))
    with pytest.raises(KeyboardInterrupt):
        fill()


def test_failure_of_another_file_is_not_told_as_that_of_this_one(tmp_path: Path) -> None:
    def fail() -> None:
        try:
            Path(__file__, "input.de").read_bytes()  # raises NotADirectoryError
        except OSError:
            raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "file"))  # noqa: B904

    with (
        pytest.raises(ResourceError, match="no space left"),
        write_errors_explained(tmp_path / "file", tmp_path),
    ):
        fail()


def test_folder_that_had_to_be_made_first_is_no_failure(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.touch()
    with pytest.raises(ResourceError, match=r"a file stands where a folder is needed"):
        write_atomically(full / "below" / "further" / "file", b"x")


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


# What is no file


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_only_a_regular_file_is_read_and_nothing_waits(tmp_path: Path, kind: str) -> None:
    replace_by(kind, tmp_path / "x")
    with pytest.raises(DataError, match=r"x: (a link, and links inside .* not followed|not a regular file)"):
        read_file(tmp_path / "x", most=100)


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_only_a_regular_file_is_appended_to(tmp_path: Path, kind: str) -> None:
    replace_by(kind, tmp_path / "x")
    with pytest.raises((DataError, ResourceError), match=r"x: (a link|not a regular file|cannot be written)"):
        open_to_append(tmp_path / "x")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", ["link to a file", "broken link"])
def test_writing_replaces_a_link_and_leaves_its_target(tmp_path: Path, kind: str) -> None:
    before = Path(__file__).read_bytes()
    replace_by(kind, tmp_path / "x")
    write_atomically(tmp_path / "x", b"new")
    assert ((tmp_path / "x").read_bytes(), (tmp_path / "x").is_symlink()) == (b"new", False)
    assert (Path(__file__).read_bytes(), (tmp_path / "nowhere").exists()) == (before, False)


def test_no_folder_below_the_one_named_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"theirs")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "eval").symlink_to(tmp_path / "elsewhere")
    path = tmp_path / "run" / "eval" / "x"
    with pytest.raises(DataError, match=r"run/eval: a link"):
        read_file(path, most=100, below=tmp_path / "run")
    with pytest.raises(DataError, match=r"run/eval: a link"):
        write_atomically(path, b"ours", below=tmp_path / "run")
    assert {each.name: each.read_bytes() for each in (tmp_path / "elsewhere").iterdir()} == {"x": b"theirs"}


def test_the_folder_named_may_itself_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    write_atomically(tmp_path / "link" / "a" / "x", b"1", below=tmp_path / "link")
    assert read_file(tmp_path / "link" / "a" / "x", most=1, below=tmp_path / "link") == b"1"


def test_no_more_is_read_than_a_file_of_its_kind_has(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(1 << 40)  # a sparse file, which takes no room on the disk
    with pytest.raises(DataError, match=r"x: more than 1,000 bytes, which no such file has"):
        read_file(tmp_path / "x", most=1000)


# What killed processes leave


def test_partials_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    own = partial_name("x")
    dead, alive = (own.replace(f"{os.getpid()}@", f"{pid}@") for pid in (BEYOND_ANY_PID, os.getppid()))
    for name in (
        own,
        dead,
        alive,
        f".x.{BEYOND_ANY_PID}.partial",
        f".y.{BEYOND_ANY_PID}.partial",
        "x.partial",
    ):
        (tmp_path / name).touch()
    write_atomically(tmp_path / "x", b"1")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"x", alive, f".y.{BEYOND_ANY_PID}.partial", "x.partial"}


def test_partials_of_another_machine_stay_for_a_day_whatever_runs_here(tmp_path: Path) -> None:
    new, old = (tmp_path / f".x.{pid}@0123abcd.partial" for pid in (BEYOND_ANY_PID, os.getpid()))
    for path in (new, old):
        path.touch()
    os.utime(old, (0, 0))
    write_atomically(tmp_path / "x", b"1")
    assert {path.name for path in tmp_path.iterdir()} == {"x", new.name}


def test_no_process_of_another_machine_has_this_ones_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = partial_name("x")
    leftovers._this_machine.cache_clear()
    try:
        monkeypatch.setattr(socket, "gethostname", lambda: "another")
        there = partial_name("x")
        (tmp_path / here).touch()
        write_atomically(tmp_path / "x", b"1")
    finally:
        leftovers._this_machine.cache_clear()
    assert there != here
    assert {path.name for path in tmp_path.iterdir()} == {"x", here}
