"""Partial files and folders: how they are named, and which of them a killed process left behind.

Knows names, machines and processes, nothing of what is inside.
"""

import functools
import hashlib
import os
import re
import socket
import time
from contextlib import suppress
from pathlib import Path

PARTIAL = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)(@(?P<machine>[0-9a-f]{8}))?\.partial", re.DOTALL)
"""Names without a machine are of earlier versions."""
LONGEST_WORK_S = 24 * 60 * 60
"""Whether a process of another machine still runs cannot be asked; in this time it writes a new file."""


def partial_name(name: str) -> str:
    """What this process alone calls `name` until it is complete, among machines of different names."""
    return f".{name}.{os.getpid()}@{_this_machine()}.partial"


def is_abandoned(entry: "os.DirEntry[str]", *, of: str | None = None) -> bool:
    """Whether `entry` is a partial (that of `of`, where given) whose maker runs no more."""
    match = PARTIAL.fullmatch(entry.name)
    if match is None or of not in (None, match["name"]):
        return False
    if match["machine"] in (None, _this_machine()):
        return not _is_running(int(match["pid"]))
    with suppress(OSError):  # it is gone
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > LONGEST_WORK_S
    return False


@functools.cache
def _this_machine() -> str:
    """A digest of what numbers processes: a machine, or a container on it."""
    numbering = ""
    with suppress(OSError):  # Linux alone has it
        numbering = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{socket.gethostname()} {numbering}".encode()).hexdigest()[:8]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it runs, for another user
    return True
