"""Two folders that change places in one step, so that no kill leaves a name without a folder.

Knows a system call, nothing of what is in the folders.
"""

import ctypes
import os
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's fcntl.h


def exchange(one: Path, other: Path) -> bool:
    """Let two entries of one file system swap their names; False where that failed and nothing has changed.

    Only Linux can do it, and not on every file system.
    """
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):  # another system, or an old C library
        return False
    names = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other))
    return bool(renameat2(*names, ctypes.c_uint(RENAME_EXCHANGE)) == 0)
