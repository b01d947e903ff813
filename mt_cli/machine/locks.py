"""Locks: one writer per folder at a time, across processes and machines."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mt_cli.errors import UsageError
from mt_cli.machine.files import beside, errors_naming, is_abandoned, recover, remove

log = logging.getLogger(__name__)

CANNOT_LOCK = (errno.ENOTSUP, errno.ENOLCK)
"""Errors of file systems without locks, such as some NFS and FUSE."""
LOOK_S = 1.0
"""Seconds to wait for a lock, so that `is_locked` in another process does not make it fail."""


@contextmanager
def locked(folder: Path, *, wait_s: float = LOOK_S) -> Iterator[None]:
    """Hold the lock of `folder`, which may not exist yet, during the block.

    Leftovers of killed processes next to it are removed.

    Raises:
        UsageError: another process still holds the lock after `wait_s` seconds.
    """
    place = folder.resolve()
    lock = FileLock(beside(place, "lock"), timeout=wait_s)
    with errors_naming(folder):
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except OSError as error:
            if isinstance(error, Timeout):
                raise UsageError(
                    f"{folder}: another process is using it; wait until it ends"
                ) from None
            if error.errno not in CANNOT_LOCK:
                raise
            log.warning(
                "%s: this file system does not support locks; run one process at a time", folder
            )
    try:
        recover(place)  # first: there may be leftovers inside
        for old in (beside(place, "old"), *place.rglob(".[!.]*.old")):
            folder_of = old.with_name(old.name[1 : -len(".old")])
            if folder_of != place and is_locked(folder_of):
                continue
            recover(folder_of)
            if folder_of.exists() and old.is_dir():
                remove(old)
        remove(beside(place, "partial"))
        for partial in place.rglob(".*.partial"):
            if _is_leftover(partial):
                remove(partial)
        yield
    finally:
        if not place.exists():  # the folder was not created
            remove(beside(place, "lock"))
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of `folder`."""
    path = beside(folder.resolve(), "lock")
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except OSError as error:  # another user's folder, or a read-only one
        return isinstance(error, Timeout)


def _is_leftover(partial: Path) -> bool:
    """Whether the process that was writing the file or folder `partial` is gone."""
    if partial.is_dir():
        return not is_locked(partial.with_name(partial.name[1 : -len(".partial")]))
    return is_abandoned(partial)
