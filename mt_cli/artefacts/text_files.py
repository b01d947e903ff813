"""Text files that a user names: their lines, and whether two of them align.

Knows bytes and lines, not what they are for.
"""

from collections.abc import Sequence
from pathlib import Path

from mt_cli.errors import DataError
from mt_cli.text.normalize import decode_line

MOST_BYTES = 1 << 30
"""Of a file that has to fit into memory."""


def read_bytes(path: Path) -> bytes:
    """The content of `path`, which may be a pipe: the user has named it.

    Raises:
        DataError: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise DataError(f"{path}: more than {MOST_BYTES:,} bytes; split it into smaller files")
    return content


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
