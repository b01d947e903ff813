"""Processes that tests start. Each ends with its test, passed or failed, and within minutes."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workspace import TIMEOUT_S

Process = subprocess.Popen[str]
Start = Callable[..., Process]
"""Starts a command with the options of `subprocess.Popen`; see the fixture `start`."""


@contextmanager
def started(*command: object, **options: Any) -> Iterator[Process]:  # noqa: ANN401
    """A process with pipes, which is killed after the block or after `TIMEOUT_S`."""
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with subprocess.Popen(list(map(str, command)), **piped) as process:
        timer = threading.Timer(TIMEOUT_S, _kill, [process])
        timer.daemon = True
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            _kill(process)


def children_of(parent: int) -> list[int]:
    """The living processes that `parent` has started, in their order."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def _kill(process: Process) -> None:
    """Kill a process with those that it has started, and those that they have started."""
    if process.poll() is not None:
        return
    family = [process.pid]
    for pid in family:  # grows meanwhile
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # starts no more
            family += children_of(pid)
            os.kill(pid, signal.SIGKILL)
