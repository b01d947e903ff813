"""Reading files: size-limited reads, sha256 and JSON. `atomic` writes them."""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from mt_cli.errors import DataError

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
"""Lists the files of its folder, whatever that holds, with their sha256."""
MAX_BYTES = 1 << 24
"""Size of a file that is read as a whole."""
MAX_TEXT_BYTES = 1 << 30
"""Size of a corpus's or a log's text."""


# Reading


def read_file(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of the regular file `path`, of at most `max_bytes` bytes.

    Raises:
        DataError: there is none, it is something else, it is larger, or it cannot be read.
    """
    try:
        if not path.is_file():
            raise DataError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        raise DataError(
            f"{path}: more than {max_bytes:,} bytes, which no such file has; it is damaged"
        )
    return data


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in `path`.

    Raises:
        DataError: missing, not a JSON object, or too large.
    """
    try:
        value = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error}); the file is damaged") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def sha256_bytes(data: bytes) -> str:
    """Hex digest of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_json(value: object) -> str:
    """Hex digest of `value`, which JSON can hold; the order of keys does not matter."""
    return sha256_bytes(json.dumps(value, sort_keys=True).encode())


def sha256_file(path: Path) -> str:
    """Hex digest of a file's content, read in chunks.

    Raises:
        DataError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def sha256_of_files(folder: Path) -> dict[str, str]:
    """sha256 of every file below `folder`, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def check_hashes(folder: Path, expected: Mapping[str, str]) -> None:
    """Compare files below `folder` with their sha256 sums, keyed by relative path.

    Raises:
        DataError: naming the first file that is missing, altered, or outside of the folder.
    """
    for name, digest in expected.items():
        path = folder / name
        try:
            is_inside = path.resolve().is_relative_to(folder.resolve())
            is_found = path.is_file()
        except (OSError, ValueError):  # a name that no file can have
            is_inside = is_found = False
        if not is_inside:
            raise DataError(
                f"{folder / MANIFEST}: lists {name[:100]!r}, which is no file in its folder"
            )
        if not is_found:
            raise DataError(f"{path}: missing, though {folder / MANIFEST} lists it")
        found = sha256_file(path)
        if found != digest:
            raise DataError(
                f"{path}: altered or damaged: sha256 {found[:12]}… found, {digest[:12]}… expected; "
                "restore it from a copy"
            )
