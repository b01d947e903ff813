"""Text files that a user names: their lines, and whether two of them align.

Knows bytes and lines, not what they are for.
"""

from collections.abc import Sequence
from pathlib import Path

from mt_cli.errors import DataError
from mt_cli.text.normalize import decode_line


def read_bytes(path: Path) -> bytes:
    """The content of `path`.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def as_lines(content: bytes) -> list[str]:
    r"""The lines of a file's `content`. Only `\n` ends one, and an unterminated last line counts."""
    raw = content.split(b"\n")
    return [decode_line(line) for line in (raw[:-1] if raw[-1] == b"" else raw)]


def check_aligned(path: Path, lines: Sequence[str], to_path: Path, to_lines: Sequence[str]) -> None:
    """Make sure that `lines`, of `path`, are as many as `to_lines`.

    Raises:
        DataError: they are not.
    """
    if len(lines) != len(to_lines):
        raise DataError(
            f"{path}: {len(lines)} lines, but {to_path} has {len(to_lines)}; "
            "the files must align line by line"
        )
