"""Files that are written whole or not at all, and their hashes.

Knows bytes and JSON, never what they mean.
"""

import errno
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mt_cli.errors import DataError, ResourceError, UsageError

REASONS = {
    errno.EEXIST: "a file stands where a folder is needed",
    errno.ENOTDIR: "a file stands where a folder is needed",
}
"""Clear words for write errors whose system message would mislead."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds either its old content or all of the new, even after a power cut.

    Raises:
        ResourceError: the disk is full or the place cannot be written to.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> ResourceError:
    """The error to raise when `path` could not be written."""
    if error.errno == errno.ENOSPC:
        return ResourceError(f"{path}: cannot be written: no space left on the disk; free some of it")
    reason = REASONS.get(error.errno or 0, error.strerror)
    return ResourceError(f"{path}: cannot be written: {reason}; name another place")


@contextmanager
def write_errors_explained(path: Path, *places: Path) -> Iterator[None]:
    """Report a failed write of one of `places`, or below it, as a failed write of `path`.

    Raises:
        ResourceError: such a write failed.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None or any(Path(error.filename).is_relative_to(place) for place in places):
            raise write_error(path, error) from error
        raise  # of another file, such as one that was read


def is_free(folder: Path) -> bool:
    """Whether `folder` does not exist, or is an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def check_replaceable(
    folder: Path, *, is_wanted: bool, own_files: Sequence[str], kind: str, ways_out: str
) -> None:
    """Make sure that `folder` is free, or may be replaced: it is `kind`, known by its `own_files`.

    Raises:
        UsageError: it is something else, or `is_wanted` is off; `ways_out` then says what to do.
    """
    if is_free(folder):
        return
    if not is_wanted:
        raise UsageError(f"{folder} exists; {ways_out}")
    if not all((folder / name).is_file() for name in own_files):
        raise UsageError(f"{folder} is not {kind}, so --overwrite leaves it alone; name another")


def put_in_place(new: Path, folder: Path, *, replaces: bool = True) -> None:
    """Rename `new` to `folder`; an old `folder` is first moved aside, and deleted at the end.

    Raises:
        ResourceError: it cannot be renamed, or `replaces` is off and `folder` is not free; it is still there.
    """
    old = folder.with_name(f".{folder.name}.old")
    try:
        shutil.rmtree(old, ignore_errors=True)
        if replaces and folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        _sync_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise write_error(folder, error) from error


@contextmanager
def built_beside(folder: Path) -> Iterator[Path]:
    """Yield a new folder to fill, which then replaces `folder`; after an error nothing of it is left.

    Raises:
        ResourceError: it cannot be written; the old folder is still there.
    """
    place = folder.resolve()  # of a link, the folder behind it is replaced, not the link
    partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
    _remove_leftovers(place)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with write_errors_explained(folder, partial):
            partial.mkdir(parents=True)
            yield partial
        put_in_place(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes of this machine left beside `folder`; running ones keep theirs."""
    for path in folder.parent.glob(f".{glob.escape(folder.name)}.*.partial"):
        _, number, _ = path.name.rsplit(".", 2)
        if number.isdecimal() and not _is_running(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it runs, for another user
    return True


def _sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: object) -> None:
    """Write `value` as readable JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # Invalid UTF-8 in a path is a lone surrogate here; it is written as `\udcff`, which JSON reads back.
    write_atomically(path, text.encode(errors="backslashreplace"))


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in `path`.

    Raises:
        DataError: missing, or not a JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error}); the file is damaged") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def sha256_bytes(data: bytes) -> str:
    """Hex digest of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex digest of a file's content, read in chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_hashes(folder: Path, expected: Mapping[str, str]) -> None:
    """Compare files below `folder` with their sha256 sums, keyed by relative path.

    Raises:
        DataError: naming the first file that is missing or altered.
    """
    for name, digest in expected.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise DataError(f"{folder / 'manifest.json'}: lists {name!r}, which is not in its folder")
        if not path.is_file():
            raise DataError(f"{path}: missing, though {folder / 'manifest.json'} lists it")
        found = sha256_file(path)
        if found != digest:
            raise DataError(
                f"{path}: altered or damaged: sha256 {found[:12]}… found, {digest[:12]}… expected; "
                "restore it from a copy"
            )
