"""What is to go wrong in a process, and what was seen of it: memory that a parent shares with its child.

Knows numbers and paths; neither how calls are counted nor what a command does.
"""

import ctypes
import enum
import errno
import mmap
from dataclasses import dataclass
from pathlib import Path

PATH_MAX = 4096
LONGEST = PATH_MAX + 32


class Action(enum.IntEnum):
    """What happens at the n-th call that changes files; the numbers are those of shim.c."""

    WATCH = 0
    """Nothing: calls are counted."""
    KILL_BEFORE = 1
    KILL_AFTER = 2
    KILL_MIDST = 3
    """In the midst of a write, after half of its bytes; of another call, after it."""
    FAIL_ONCE = 4
    FAIL_ON = 5
    """That call fails, and all that follow."""


KILLS = (Action.KILL_BEFORE, Action.KILL_AFTER, Action.KILL_MIDST)


@dataclass(frozen=True)
class Strike:
    """One thing that goes wrong."""

    action: Action = Action.WATCH
    at: int = 0
    """The call that is struck, from 1."""
    error: int = 0
    """The errno of the call that fails."""
    later: int = 0
    """The errno of those that fail after it; 0 is the same."""

    def __str__(self) -> str:
        what = self.action.name.lower().replace("_", " ")
        errors = [errno.errorcode[error] for error in (self.error, self.later) if error]
        return f"{what} call {self.at}{' with ' if errors else ''}{', then '.join(errors)}"


class Record(ctypes.Structure):
    """`struct plan` of shim.c."""

    _fields_ = (
        ("action", ctypes.c_long),
        ("at", ctypes.c_long),
        ("error", ctypes.c_long),
        ("later", ctypes.c_long),
        ("calls", ctypes.c_long),
        ("folder", ctypes.c_char * PATH_MAX),
        ("struck", ctypes.c_char * LONGEST),
        ("elsewhere", ctypes.c_char * LONGEST),
    )
    action: int
    at: int
    error: int
    later: int
    calls: int
    folder: bytes
    struck: bytes
    elsewhere: bytes


@dataclass(frozen=True)
class Seen:
    """What was seen of the calls of a process that has ended."""

    calls: int
    """Calls below the folder that changed files."""
    struck: str
    """The call that was struck, with its path; empty if none was."""
    elsewhere: str
    """The first call that changed a file outside of the folder; empty if none did."""


class Plan:
    """A strike on calls below a folder, in memory that a forked child shares."""

    def __init__(self, strike: Strike, *, folder: Path) -> None:
        self._memory = mmap.mmap(-1, ctypes.sizeof(Record))
        self.record = Record.from_buffer(self._memory)
        self.record.action, self.record.at = strike.action, strike.at
        self.record.error, self.record.later = strike.error, strike.later or strike.error
        self.record.folder = str(folder.resolve()).encode()

    def seen(self) -> Seen:
        """What has been seen so far."""
        return Seen(
            self.record.calls,
            self.record.struck.decode(errors="replace"),
            self.record.elsewhere.decode(errors="replace"),
        )
