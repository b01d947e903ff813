"""All disk access: size-limited reads, sha256, JSON, and atomic writes of files and folders.

Failures of the system raise an `OSError` that names the path as the user knows it.
"""

import errno
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from mt_cli.errors import DataError, UsageError

Kind = TypeVar("Kind")
MANIFEST = "manifest.json"
"""Lists the files of its folder with their sha256."""
MAX_BYTES = 1 << 24
"""Maximum size of a file that is read as a whole."""
MAX_TEXT_BYTES = 1 << 30
"""Maximum size of the text of a corpus or a log."""
MAX_NAME = 255
"""Maximum bytes of a path in a manifest."""


# Reading


def read_file(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Read the regular file `path`, of at most `max_bytes` bytes.

    Raises:
        DataError: the file is missing, not a regular file, or too large.
    """
    if not path.is_file():
        raise DataError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
    with errors_naming(path), path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise DataError(f"{path}: damaged: larger than {max_bytes:,} bytes")
    return data


def read_json(path: Path) -> dict[str, object]:
    """Read the JSON object in `path`.

    Raises:
        DataError: the file is missing, not a JSON object, or too large.
    """
    return parsed(dict[str, object], read_file(path), path)


def parsed(kind: type[Kind], data: bytes, origin: Path | str) -> Kind:
    """Parse and validate the JSON `data` as `kind`; errors call it `origin`.

    Raises:
        DataError: the data is not valid.
    """
    with damage_named(origin, "JSON", ValueError, RecursionError):
        value = json.loads(data)
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        detail = error.errors()[0]
        place = "".join(f"{part}: " for part in detail["loc"])
        raise DataError(
            f"{origin}: damaged, or from another version: {place}{detail['msg']}"
        ) from error


@contextmanager
def damage_named(place: Path | str, kind: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn a library's `errors` in the block into a `DataError` that names the file's `place`."""
    try:
        yield
    except errors as error:
        raise DataError(f"{place}: damaged or invalid {kind}: {error}") from error


def sha256_bytes(data: bytes) -> str:
    """Hex digest of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_json(value: object) -> str:
    """Hex digest of `value` as JSON; the order of keys does not matter."""
    return sha256_bytes(json.dumps(value, sort_keys=True).encode())


def sha256_file(path: Path) -> str:
    """Hex digest of a file's content, read in chunks."""
    with errors_naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_files(folder: Path) -> dict[str, str]:
    """sha256 of every file below `folder`, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def check_hashes(folder: Path, expected: Mapping[str, str]) -> None:
    """Verify files below `folder` by their sha256 sums, keyed by relative path.

    Raises:
        DataError: a file is missing, altered, or outside of the folder; names the first one.
    """
    for name in expected:
        path = folder / name
        is_possible = "\0" not in name and len(os.fsencode(name)) <= MAX_NAME
        if not is_possible or not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{folder / MANIFEST}: lists {name[:99]!r}, which is outside its folder"
            )
        if not path.is_file():
            raise DataError(f"{path}: missing, though {folder / MANIFEST} lists it")
    paths = [folder / name for name in expected]
    with ThreadPoolExecutor() as pool:  # hash several files in parallel
        for path, digest, found in zip(
            paths, expected.values(), pool.map(sha256_file, paths), strict=True
        ):
            if found != digest:
                raise DataError(
                    f"{path}: altered or damaged: sha256 {found[:12]}…, expected {digest[:12]}…"
                )


CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)
"""Errors of file systems that cannot sync: VirtualBox shares, CIFS, FUSE."""
HOST = re.sub(r"\W", "", platform.node())[:20] or "host"
PARTIAL = re.compile(rf"\..+\.{HOST}-(\d{{1,9}})\.partial", re.ASCII)
"""Name of a file that is being written by a process of this machine; it contains the process id."""


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Make an `OSError` in the block name `path`, as the user knows it."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        del error.filename2  # None would be shown, too
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` has either the old or the new content, even after a power cut.

    Missing folders are created.
    """
    with errors_naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as file:
            file.write(data)


def write_json(path: Path, value: object) -> None:
    """Write `value` as readable JSON, atomically."""
    write_atomically(path, json_bytes(value))


def json_bytes(value: object) -> bytes:
    """`value` as readable JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # Invalid UTF-8 in a path is a lone surrogate here; it is written as `\udcff`, which JSON can
    # read.
    return text.encode(errors="backslashreplace")


@contextmanager
def replaced(path: Path) -> Iterator[BufferedWriter]:
    """Yield a new file to write, which then replaces `path`; on an error, it is removed.

    The new file gets the permissions of the old one.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        if is_abandoned(leftover):
            remove(leftover)
    partial = path.with_name(f".{path.name}.{HOST}-{os.getpid()}.partial")
    with errors_naming(path):
        file = partial.open("wb")
        with suppress(FileNotFoundError):
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
    try:
        yield file
        with errors_naming(path):
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
    """Yield a new folder to fill, which then replaces `folder`; on an error, it is removed.

    The caller holds the lock of `folder` or of its parent. If writing fails, the old folder is
    untouched.
    """
    place = folder.resolve()  # replace the folder that a symlink points to, not the link
    partial = beside(place, "partial")
    old = beside(place, "old")
    recover(place)
    try:
        with errors_naming(folder):
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            partial.mkdir(parents=True)
        try:
            yield partial
        except OSError as error:
            if error.filename is None or str(error.filename).startswith(str(partial)):
                error.filename = str(folder)
            raise
        with errors_naming(folder):
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
    """The path next to `folder` for the new folder being built (`partial`) or for the `old` one."""
    return folder.with_name(f".{folder.name}.{what}")


def _sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable, if possible; Windows cannot open folders."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
    if descriptor is not None:
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)


def sync(descriptor: int) -> None:
    """Make written data durable, if the file system supports it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise


def remove(path: Path) -> None:
    """Delete the file, folder or symlink `path`, if possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def is_free(folder: Path) -> bool:
    """Whether `folder` does not exist or is empty."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def check_replaceable(
    folder: Path, *, is_wanted: bool, is_own: Callable[[Path], bool], kind: str, ways_out: str
) -> None:
    """Check that `folder` is free, or is wanted to be replaced and is `kind` by `is_own`.

    Raises:
        UsageError: the folder is something else or the current directory, or `is_wanted` is off;
            `ways_out` then says what to do.
    """
    recover(folder)
    if not is_free(folder):
        if not is_wanted:
            raise UsageError(f"{folder} already exists; {ways_out}")
        if not is_own(folder):
            raise UsageError(f"{folder} already exists and is not {kind}; choose another folder")
    if Path.cwd().is_relative_to(folder.resolve()):
        raise UsageError(f"{folder}: cannot replace the current directory; choose another folder")


def has_files(folder: Path, names: Iterable[str]) -> bool:
    """Whether `folder` has files of all these `names`."""
    return all((folder / name).is_file() for name in names)


def check_outside(folder: Path, inputs: Iterable[Path], *, way_out: str) -> None:
    """Check that `folder`, which will be replaced, contains none of `inputs`.

    Raises:
        UsageError: it contains one; `way_out` then says what to do.
    """
    for path in inputs:
        if path.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{path} is inside {folder}, which would be replaced; {way_out}")


def is_abandoned(partial: Path) -> bool:
    """Whether the process of this machine that was writing `partial` is gone."""
    found = PARTIAL.fullmatch(partial.name)
    if found is None or os.name == "nt":  # on Windows, signal 0 would kill the process
        return False
    try:
        os.kill(int(found[1]), 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False
