"""Two folders that change places in one step, so that no kill leaves a name without a folder.

Knows a system call, nothing of what is in the folders.
"""

import ctypes
import errno
import os
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's fcntl.h
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""What an old kernel, a file system or a sandbox answers that does not know the call."""


def exchange(one: Path, other: Path) -> bool:
    """Let two entries of one file system swap their names; False where no system call can.

    Only Linux can do it, and not on every file system.

    Raises:
        OSError: it failed for another reason; nothing has changed.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # another system, or an old C library
        return False
    names = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other))
    if renameat2(*names, ctypes.c_uint(RENAME_EXCHANGE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(other))
