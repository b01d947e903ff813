"""A lock on a run folder: one process at a time may train in it.

Knows the file that is locked, nothing else of a run.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mt_cli.artefacts.files import open_to_append, opened
from mt_cli.errors import DataError, UsageError

LOG = "train.log"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in the run `folder`.

    Raises:
        UsageError: another process is training there.
    """
    path = folder / LOG
    with ExitStack() as stack:
        file = stack.enter_context(open_to_append(path))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_still_there = os.path.samestat(os.fstat(file.fileno()), path.lstat())
        except (BlockingIOError, FileNotFoundError):
            raise busy(folder) from None
        if not is_still_there:  # another process has put a run of its own into this place
            raise busy(folder)
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process is training in `folder`, or making it."""
    with suppress(DataError), opened(folder / LOG) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def busy(folder: Path) -> UsageError:
    """The error to raise when another process has `folder`."""
    return UsageError(f"{folder}: another process is training there; wait for its end")
