"""Writing files and folders atomically: a reader sees the old one or the new one, never half."""

import errno
import glob
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

from mt_cli.errors import ResourceError, UsageError
from mt_cli.machine.shortage import MEMORY, shortage

REASONS = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "no space left on the disk",
    errno.EEXIST: "a file stands where a folder is needed",
    errno.ENOTDIR: "a file stands where a folder is needed",
}
"""Clear words for write errors whose system message would mislead."""


CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)
"""Errors of file systems that have no such thing as syncing: shares of VirtualBox, CIFS, FUSE."""


HOST = re.sub(r"\W", "", platform.node())[:20] or "host"


PARTIAL = re.compile(rf"\..+\.{HOST}-(\d{{1,9}})\.partial", re.ASCII)
"""Name of a file that a process of this machine, whose number is in it, is writing."""


class WriteError(ResourceError):
    """A file could not be written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


@contextmanager
def write_errors_named(path: Path) -> Iterator[None]:
    """Report each failed write in the block as one of `path`, the place that the user knows.

    A lack of memory is no failed write, and is raised as it is.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except WriteError as error:
        raise WriteError(path, error.reason) from error
    except OSError as error:
        if shortage(error) == MEMORY:
            raise
        first = error
        # To close a file that could not be written fails too.
        while isinstance(first.__context__, OSError):
            first = first.__context__
        remedy = (
            "free some of it"
            if first.errno in (errno.ENOSPC, errno.EDQUOT)
            else "name another place"
        )
        raise WriteError(path, f"cannot be written: {reason_of(first)}; {remedy}") from error


def reason_of(error: OSError) -> str:
    """Why something could not be written, in words."""
    return REASONS.get(error.errno or 0, error.strerror or str(error))


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds its old content or all of the new, even after a power cut.

    Missing folders are made.

    Raises:
        ResourceError: the disk is full or the place cannot be written to.
    """
    with write_errors_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as file:
            file.write(data)


def write_json(path: Path, value: object) -> None:
    """Write `value` as readable JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # Invalid UTF-8 in a path is a lone surrogate here; it is written as `\udcff`, which JSON reads
    # back.
    write_atomically(path, text.encode(errors="backslashreplace"))


@contextmanager
def replaced(path: Path) -> Iterator[BufferedWriter]:
    """Yield a new file to fill, which then replaces `path`; an error leaves nothing of it.

    It gets the permissions of the file that it replaces.

    Raises:
        ResourceError: it cannot be written.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        if is_abandoned(leftover):
            remove(leftover)
    partial = path.with_name(f".{path.name}.{HOST}-{os.getpid()}.partial")
    with write_errors_named(path):
        file = partial.open("wb")
        with suppress(FileNotFoundError):
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
    try:
        yield file
        with write_errors_named(path):
            file.flush()
            sync(file.fileno())
            file.close()
            partial.replace(path)
            _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            partial.unlink()


@contextmanager
def built_beside(folder: Path) -> Iterator[Path]:
    """Yield a new folder to fill, which then replaces `folder`; an error leaves nothing of it.

    The caller holds the lock of `folder`, or of the folder that it is in.

    Raises:
        ResourceError: it cannot be written; the old folder is still there.
    """
    place = folder.resolve()  # of a link, the folder behind it is replaced, not the link
    partial, old = beside(place, "partial"), beside(place, "old")
    recover(place)
    try:
        with write_errors_named(folder):
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            partial.mkdir(parents=True)
        try:
            yield partial
        except WriteError as error:
            raise WriteError(folder, error.reason) from error
        with write_errors_named(folder):
            if place.exists():
                place.rename(old)
            partial.rename(place)
            _sync_folder(place.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        recover(place)
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Put back the old `folder` if a process was killed while replacing it."""
    place = folder.resolve()
    with suppress(OSError):
        if not place.exists() and (old := beside(place, "old")).is_dir():
            old.rename(place)


def beside(folder: Path, what: str) -> Path:
    """The path beside `folder` of the new one as it is built (`partial`), or of the `old` one."""
    return folder.with_name(f".{folder.name}.{what}")


def _sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Make what was written durable, where the file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise


def remove(path: Path) -> None:
    """Delete `path`, a file or a folder, if that can be done; of a link, only the link."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def is_free(folder: Path) -> bool:
    """Whether `folder` does not exist, or is an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def check_replaceable(
    folder: Path, *, is_wanted: bool, is_own: Callable[[Path], bool], kind: str, ways_out: str
) -> None:
    """Make sure that `folder` is free, or may be replaced: it is `kind`, as `is_own` can tell.

    Raises:
        UsageError: it is something else, or the folder that the user is in, or `is_wanted` is off;
            `ways_out` then says what to do.
    """
    recover(folder)
    if not is_free(folder):
        if not is_wanted:
            raise UsageError(f"{folder} exists; {ways_out}")
        if not is_own(folder):
            raise UsageError(
                f"{folder} exists and is not {kind}, so nothing replaces it; name another"
            )
    if Path.cwd().is_relative_to(folder.resolve()):
        raise UsageError(
            f"{folder}: a new folder would take the place of the one you are in; name another"
        )


def has_files(folder: Path, names: Iterable[str]) -> bool:
    """Whether `folder` has files of all these `names`."""
    return all((folder / name).is_file() for name in names)


def check_outside(folder: Path, inputs: Iterable[Path], *, way_out: str) -> None:
    """Make sure that `folder`, which will be replaced, holds none of `inputs`.

    Raises:
        UsageError: it does; `way_out` then says what to do.
    """
    for path in inputs:
        if path.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{path} lies in {folder}, which would be replaced; {way_out}")


def is_abandoned(partial: Path) -> bool:
    """Whether the process of this machine that was writing the file `partial` is gone."""
    found = PARTIAL.fullmatch(partial.name)
    if found is None or os.name == "nt":  # where a signal of 0 would end the process
        return False
    try:
        os.kill(int(found[1]), 0)
    except OSError as error:
        return error.errno == errno.ESRCH
    return False
