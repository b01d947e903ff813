"""This process: its cores, its signals and its end. Imports no torch."""

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
"""How long OpenMP's threads spin before they sleep: GNU's in rounds, LLVM's and Intel's in ms."""


def bound_spinning() -> None:
    """Let OpenMP's threads sleep soon when they wait, unless the user has chosen how they wait.

    By default they spin for long, and where another process needs a core, all of them then wait for
    the one thread that has none: training was 4 to 20 times slower. It has to be called before
    torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in BOUNDED_SPIN.items():
            os.environ.setdefault(name, value)


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity, or fewer if a container limits it."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on every system
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota() -> float | None:
    """Cores' worth of time that a container may use, such as 0.5; None if it is not limited.

    The quota of each cgroup counts, from that of this process up; a container may see its own as
    the root.
    """
    quotas = []
    for line in _read(OWN_CGROUPS).splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / "cpu" if controllers else CGROUPS  # of version 1, or of version 2
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
"""The library of NVIDIA's driver, on Linux and on Windows."""
AMD_GPU = Path("/dev/kfd")


def may_have_gpu() -> bool:
    """Whether PyTorch may find a GPU here: its driver tells, and takes no second to be asked."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    for name in GPU_DRIVERS:
        with suppress(OSError):
            ctypes.CDLL(name)
            return True
    return AMD_GPU.exists()


SAME_S = 1.0
"""Signals within this time count as one: a launcher forwards what its process group received."""
TERMINATING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU")
    if hasattr(signal, name)
)
"""What schedulers of clusters send before they end a job: they all mean the same here."""
HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
REPEATED = getattr(signal, "SIGXCPU", None)
"""The system repeats it every second until the process ends."""


class StopSignals:
    """Within its block, the first signal is only recorded; another one, after `SAME_S`, is obeyed.

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
        """Count signal `number`, which another process received, as this one's first."""
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
"""Set where the end of the process would wait for other processes."""


def leave(code: int) -> None:
    """Leave with exit `code` if the process must leave at once; its output is written first."""
    if not must_leave_at_once.is_set():
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def import_extra(module: str, *, extra: str, needed_by: str) -> Any:  # noqa: ANN401
    """The optional package that `needed_by` needs.

    Raises:
        ResourceError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ResourceError(
            f"{needed_by} needs a package ({error}); install it with pip install '.[{extra}]' in "
            f"the repository, or with uvx --from 'mt_cli[{extra}] @ git+URL'"
        ) from error
