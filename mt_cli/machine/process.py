"""This process: cores, signals, exit, optional packages. Must not import torch."""

import ctypes
import importlib
import math
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Self

from mt_cli.errors import ResourceError

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
BOUNDED_SPIN = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
"""How long OpenMP threads spin before they sleep: rounds for GNU, ms for LLVM and Intel."""


def bound_spinning() -> None:
    """Make waiting OpenMP threads sleep soon, unless the user has configured it.

    By default they spin for a long time. When another process needs a core, all of them wait for
    the one thread without a core: training was 4 to 20 times slower. Call this before torch is
    imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in BOUNDED_SPIN.items():
            os.environ.setdefault(name, value)


def usable_cores() -> int:
    """Cores that this process may use: by its CPU affinity and its container's quota."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on every system
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota() -> float | None:
    """The container's CPU quota in cores, such as 0.5; None without a limit.

    It is the lowest quota of this process's cgroup and all parents; inside a container, its own
    cgroup may look like the root.
    """
    quotas = []
    for line in _read(OWN_CGROUPS).splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / "cpu" if controllers else CGROUPS  # cgroups version 1, or version 2
        inner = root / place.lstrip("/")
        for folder in (inner, *inner.parents):
            values = _read(folder / "cpu.max").split()  # quota and period, or max
            if controllers:
                values = [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
            if len(values) == 2 and all(map(str.isdecimal, values)) and int(values[0]):
                quotas.append(int(values[0]) / int(values[1]))
            if folder == root:
                break
    return min(quotas, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


GPU_DRIVERS = ("libcuda.so.1", "nvcuda.dll")
"""NVIDIA's driver library on Linux and on Windows."""
AMD_GPU = Path("/dev/kfd")


def may_have_gpu() -> bool:
    """Whether there may be a GPU: looks for a driver, which is faster than importing PyTorch."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    for name in GPU_DRIVERS:
        with suppress(OSError):
            ctypes.CDLL(name)
            return True
    return AMD_GPU.exists()


SAME_S = 1.0
"""Signals within this time count as one: a launcher also forwards its group's signals."""
TERMINATING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU")
    if hasattr(signal, name)
)
"""Signals that cluster schedulers send before they end a job; all are treated alike."""
HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
REPEATED = getattr(signal, "SIGXCPU", None)
"""A signal that the system repeats every second until the process ends."""


class StopSignals:
    """Within its block, the first signal is only recorded; a second one, after `SAME_S`, acts.

    A signal that the process ignores, as under `nohup`, stays ignored.
    """

    SIGNALS = (signal.SIGINT, *TERMINATING, *HANGUP)

    def __init__(self) -> None:
        self.received: int | None = None
        self._received_at = 0.0
        handlers = {number: signal.getsignal(number) for number in self.SIGNALS}
        self._previous = {
            n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN
        }

    def __enter__(self) -> Self:
        for number in self._previous:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def remember(self, number: int) -> None:
        """Treat signal `number`, received by another process, as received by this one."""
        if self.received is None:
            self.received = number
            self._received_at = time.monotonic()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.remember(number)
        elif number != REPEATED and time.monotonic() - self._received_at > SAME_S:
            self.__exit__()
            signal.raise_signal(number)


must_leave_at_once = Event()
"""Set if a normal exit would wait for other processes."""


def leave(code: int) -> None:
    """Exit immediately with `code` if `must_leave_at_once` is set, after flushing the output."""
    if not must_leave_at_once.is_set():
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def import_extra(module: str, *, extra: str, needed_by: str) -> Any:  # noqa: ANN401
    """Import the optional package that `needed_by` needs.

    Raises:
        ResourceError: the package cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ResourceError(
            f"{needed_by} needs a package ({error}); install it with pip install '.[{extra}]' in "
            f"the repository, or with uvx --from 'mt_cli[{extra}] @ git+URL'"
        ) from error
