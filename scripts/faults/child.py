"""A forked child: runs some work with streams, a plan and a time limit of its own, and says how it ended.

Knows processes, not what the work is. The parent has to be single-threaded.
"""

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from faults.plan import Plan, Seen
from faults.shim import Arm

STREAMS = ("stdin", "stdout", "stderr")
SIGNALS: Mapping[signal.Signals, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
"""Handlers of a child, whatever the parent was started with: a shell's background job ignores SIGINT."""
PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int
    """Its exit code; of a child that was killed, minus the signal."""
    out: bytes
    err: str
    seconds: float
    cpu_s: float
    peak_mb: float
    """Most memory that it held, over what it began with."""
    is_hang: bool
    """It was killed at the time limit."""
    seen: Seen

    @property
    def was_struck_dead(self) -> bool:
        """Whether the shim killed it."""
        return self.code == -signal.SIGKILL and bool(self.seen.struck) and not self.is_hang


def forked(
    work: Callable[[], int],
    *,
    folder: Path,
    streams: Path,
    plan: Plan,
    arm: Arm,
    stdin: bytes = b"",
    time_limit_s: float,
) -> Ended:
    """Run `work`, which gives an exit code, in a child whose working directory is `folder`.

    What it prints goes to files in `streams`.
    """
    streams.mkdir(parents=True, exist_ok=True)
    (streams / "stdin").write_bytes(stdin)
    for name in ("stdout", "stderr"):
        (streams / name).write_bytes(b"")
    sys.stdout.flush()
    sys.stderr.flush()
    ends, begun = os.pipe()  # the child holds `begun`: its end is the end of the file
    started_at = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(ends)
        _become(work, folder, streams, plan, arm, told_by=begun)
    os.close(begun)
    base = int(os.read(ends, 32) or b"0")
    is_hang = not select.select([ends], [], [], time_limit_s)[0]
    if is_hang:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    os.close(ends)
    return Ended(
        code=os.waitstatus_to_exitcode(status),
        out=(streams / "stdout").read_bytes(),
        err=(streams / "stderr").read_bytes().decode(errors="backslashreplace"),
        seconds=time.monotonic() - started_at,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mb=max(0, usage.ru_maxrss * 1024 - base) / 1e6,
        is_hang=is_hang,
        seen=plan.seen(),
    )


def _become(
    work: Callable[[], int], folder: Path, streams: Path, plan: Plan, arm: Arm, *, told_by: int
) -> NoReturn:
    """Be the child."""
    code = 1
    for number, handler in SIGNALS.items():
        signal.signal(number, handler)
    try:
        os.chdir(folder)
        for fd, name in enumerate(STREAMS):
            opened = os.open(streams / name, os.O_RDONLY if fd == 0 else os.O_WRONLY | os.O_APPEND)
            os.dup2(opened, fd)
            os.close(opened)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        os.write(told_by, str(_resident_bytes()).encode())
        arm(plan)
        code = work()
        sys.stdout.flush()
    finally:
        # No clean-up of the parent's: its files, its threads and its pytest are not the child's.
        os._exit(code)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
