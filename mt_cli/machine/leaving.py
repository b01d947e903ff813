"""Leaving the process without what libraries do at its end, where that could wait for ever."""

import os
import sys
from contextlib import suppress
from threading import Event

must_leave_at_once = Event()
"""Set where the end of the process would wait for other processes."""


def leave(code: int) -> None:
    """Leave with exit `code` if the process must leave at once; its output is written first."""
    if not must_leave_at_once.is_set():
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
