"""Partial files and folders: how they are named, and which of them a killed process left behind.

Knows names and processes of this machine, nothing of what is inside.
"""

import os
import re

PARTIAL = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.partial", re.DOTALL)


def partial_name(name: str) -> str:
    """What this process calls `name` until it is complete."""
    return f".{name}.{os.getpid()}.partial"


def is_abandoned(entry: str, *, of: str | None = None) -> bool:
    """Whether `entry` is a partial (that of `of`, where given) whose maker runs no more."""
    match = PARTIAL.fullmatch(entry)
    return match is not None and of in (None, match["name"]) and not _is_running(int(match["pid"]))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it runs, for another user
    return True
