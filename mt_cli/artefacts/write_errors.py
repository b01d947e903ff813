"""Failed writes, told of the place that a user knows.

Knows paths and reasons, never what was to be written.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mt_cli.errors import ResourceError

REASONS = {
    errno.EEXIST: "a file stands where a folder is needed",
    errno.ENOTDIR: "a file stands where a folder is needed",
}
"""Clear words for write errors whose system message would mislead."""


class WriteError(ResourceError):
    """A file could not be written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


def write_error(path: Path, error: OSError) -> WriteError:
    """The error to raise when `path` could not be written."""
    error = _first_failure(error)
    if error.errno == errno.ENOSPC:
        return WriteError(path, "cannot be written: no space left on the disk; free some of it")
    reason = REASONS.get(error.errno or 0, error.strerror)
    return WriteError(path, f"cannot be written: {reason}; name another place")


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
    except WriteError as error:
        if any(error.path.is_relative_to(place) for place in places):
            raise WriteError(path, error.reason) from error
        raise
    except OSError as error:
        if error.filename is None or any(Path(error.filename).is_relative_to(place) for place in places):
            raise write_error(path, error) from error
        raise  # of another file, such as one that was read


def _first_failure(error: OSError) -> OSError:
    """The failure that came first, where closing what could not be written failed for another reason.

    A name that is taken or not there is no such failure, as whoever found it went on; nor is one of another
    file, such as one that was read.
    """
    while isinstance(error.__context__, OSError) and not error.__suppress_context__:
        earlier = error.__context__
        if isinstance(earlier, FileNotFoundError | FileExistsError) or earlier.filename != error.filename:
            break
        error = earlier
    return error
