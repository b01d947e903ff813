"""The one door to files: regular files of bounded size, read and written whole.

Below the folder that a caller names no link is followed, and nothing is waited for: a link, a pipe or a
device in the place of a file is an error that names it. Knows bytes and hashes, never what they mean.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

from mt_cli.artefacts.leftovers import is_abandoned, partial_name
from mt_cli.artefacts.write_errors import write_error
from mt_cli.errors import DataError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MANIFEST = "manifest.json"
"""Lists the files of its folder, whatever that holds, with their sha256."""
LONGEST_NAME = 255
"""Bytes of a file's name, as most systems have it."""


def is_there(path: Path) -> bool:
    """Whether anything has the name `path`, a broken link included: then whoever opens it says what it is."""
    return os.path.lexists(path)


# Reading


@contextmanager
def opened(path: Path, *, below: Path | None = None, most: int | None = None) -> Iterator[BufferedReader]:
    """The regular file `path`, for reading; from the folder `below` on (by default, its own) without links.

    `most` is the largest number of bytes that such a file may have. A file with holes is as large as it says,
    and to read it takes as long.

    Raises:
        DataError: there is none, it is something else, it is larger, or it cannot be read.
    """
    try:
        with os.fdopen(_open(path, os.O_RDONLY, below=below), "rb") as file:
            if most is not None and os.fstat(file.fileno()).st_size > most:
                raise _too_large(path, most)
            yield file
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def read_file(path: Path, *, most: int, below: Path | None = None) -> bytes:
    """The content of `path`, of `most` bytes at most; see `opened`.

    Raises:
        DataError: it cannot be read, or is larger.
    """
    with opened(path, below=below) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise _too_large(path, most)
    return data


def sha256_bytes(data: bytes) -> str:
    """Hex digest of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path, *, below: Path | None = None, most: int | None = None) -> str:
    """Hex digest of a file's content, read in chunks; see `opened`."""
    with opened(path, below=below, most=most) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_hashes(folder: Path, expected: Mapping[str, str], *, most: int | None = None) -> None:
    """Compare files below `folder`, of `most` bytes each, with their sha256 sums, keyed by relative path.

    Raises:
        DataError: naming the first file that is missing, altered or larger.
    """
    for name, digest in expected.items():
        path = folder / name
        if not _is_inside(name):
            shown = f"{name[:LONGEST_NAME]!r}"
            raise DataError(f"{folder / MANIFEST}: lists {shown}, which is no file in its folder")
        if not is_there(path):
            raise DataError(f"{path}: missing, though {folder / MANIFEST} lists it")
        check_hash(path, sha256_file(path, below=folder, most=most), expected=digest)


def _is_inside(name: str) -> bool:
    """Whether `name`, which a stranger may have written, can be that of a file below a folder."""
    try:
        parts = os.fsencode(name).split(b"/")
    except UnicodeEncodeError:  # half a character
        return False
    return all(part not in (b"", b".", b"..") and len(part) <= LONGEST_NAME for part in parts) and (
        "\0" not in name
    )


def _too_large(path: Path, most: int) -> DataError:
    return DataError(f"{path}: more than {most:,} bytes, which no such file has; the file is damaged")


def check_hash(path: Path, found: str, *, expected: str) -> None:
    """Make sure that the sha256 sum of `path` is the expected one.

    Raises:
        DataError: it is not.
    """
    if found != expected:
        raise DataError(
            f"{path}: altered or damaged: sha256 {found[:12]}… found, {expected[:12]}… expected; "
            "restore it from a copy"
        )


# Writing


def write_atomically(path: Path, data: bytes, *, below: Path | None = None) -> None:
    """Write `data` so that `path` holds either its old content or all of the new, even after a power cut.

    Missing folders are made. From the folder `below` on (by default, the file's own), no link is followed.

    Raises:
        ResourceError: the disk is full or the place cannot be written to.
        DataError: a folder on the way is a link.
    """
    try:
        with replaced(path, below=below, makes_folders=True) as file:
            file.write(data)
    except OSError as error:
        raise write_error(path, error) from error


@contextmanager
def replaced(
    path: Path, *, below: Path | None = None, makes_folders: bool = False
) -> Iterator[BufferedWriter]:
    """A new file to fill, which then takes the place of `path`; after an error nothing of it is left.

    Raises:
        OSError: it cannot be written.
    """
    partial = partial_name(path.name)
    with _opened_folder(path, below=below, makes_folders=makes_folders) as folder:
        _remove_leftovers(folder, of=path.name)
        try:
            with _named(path):
                descriptor = os.open(
                    partial, FILE | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder
                )
            with _closed_after(os.fdopen(descriptor, "wb")) as file:
                yield file
                file.flush()
                os.fsync(descriptor)
            with _named(path):
                os.replace(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(OSError):
                os.unlink(partial, dir_fd=folder)
        os.fsync(folder)


@contextmanager
def _closed_after(file: BufferedWriter) -> Iterator[BufferedWriter]:
    """Close `file` after the block; if that has failed, closing cannot hide why."""
    try:
        yield file
    except BaseException:
        with suppress(OSError):
            file.close()
        raise
    file.close()


def open_to_append(path: Path) -> BufferedWriter:
    """The regular file `path`, made if there is none, for writing at its end; never through a link.

    Raises:
        DataError: it is a link, or no regular file.
        ResourceError: it cannot be written to.
    """
    try:
        descriptor = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    except OSError as error:
        raise write_error(path, error) from error
    return os.fdopen(descriptor, "ab")


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Links


def link_error(path: Path) -> DataError:
    """The error to raise where a link stands in place of a file or a folder."""
    return DataError(
        f"{path}: a link, and links inside a run or prepared data are not followed; "
        "put the file or folder itself there"
    )


def check_no_links(folder: Path, *, below: Path) -> None:
    """Make sure that no link is on the way from `below` to `folder`; what does not exist is none.

    Raises:
        DataError: there is one.
    """
    for part in [folder, *folder.parents]:
        if part == below:
            break
        if part.is_symlink():
            raise link_error(part)


def _open(path: Path, flags: int, *, below: Path | None = None) -> int:
    """A descriptor of the regular file `path`."""
    with _opened_folder(path, below=below) as folder:
        try:
            descriptor = os.open(path.name, FILE | flags, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise link_error(path) from None
            if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
                raise _irregular(path) from None
            raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _irregular(path)
    return descriptor


def _irregular(path: Path) -> DataError:
    return DataError(f"{path}: not a regular file; a folder, a pipe or a device stands in its place")


@contextmanager
def _opened_folder(path: Path, *, below: Path | None, makes_folders: bool = False) -> Iterator[int]:
    """A descriptor of the folder of `path`, reached from `below` without links."""
    place = below or path.parent
    if makes_folders:
        place.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with _named(path):
            descriptor = os.open(place, FOLDER)
        stack.callback(os.close, descriptor)
        for name in path.parent.relative_to(place).parts:
            place /= name
            with _named(path):
                if makes_folders:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                if place.is_symlink():
                    raise link_error(place)
                descriptor = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            stack.callback(os.close, descriptor)
        yield descriptor


def _remove_leftovers(folder: int, *, of: str) -> None:
    """Remove what killed processes left of the file called `of`, and this process itself."""
    with os.scandir(folder) as entries:
        abandoned = [each.name for each in entries if is_abandoned(each, of=of)]
    for name in {*abandoned, partial_name(of)}:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an error name `path`, not a name that is relative to an open folder."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
