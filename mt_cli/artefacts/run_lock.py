"""A lock on a run folder: one process at a time may train in it.

Knows the file that is locked, nothing else of a run.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mt_cli.errors import UsageError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in the run `folder`.

    Raises:
        UsageError: another process is training there.
    """
    path = folder / "train.log"
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_still_there = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            raise busy(folder) from None
        if not is_still_there:  # another process has put a run of its own into this place
            raise busy(folder)
        yield


def busy(folder: Path) -> UsageError:
    """The error to raise when another process has `folder`."""
    return UsageError(f"{folder}: another process is training there; wait for its end")
