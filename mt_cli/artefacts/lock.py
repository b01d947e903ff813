"""Who trains in a run folder: one process at a time.

Knows the file that is locked, nothing else of a run.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mt_cli.errors import UsageError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in the run `folder`.

    Raises:
        UsageError: one is at it.
    """
    path = folder / "train.log"
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy(folder) from None
        # Another process may have put a run of its own into this place since.
        if not (path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())):
            raise busy(folder)
        yield


def busy(folder: Path) -> UsageError:
    """The error to raise when another process has `folder`."""
    return UsageError(f"{folder}: another process is training there; wait for its end")
