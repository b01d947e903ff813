"""This process: its cores, signals, workers, and what it runs out of. Imports no torch."""

import ctypes
import errno
import importlib
import math
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Self, TypeVar, cast

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
            f"{needed_by} needs a package ({error}); in the repository, pip install '.[{extra}]' "
            f"installs it; uvx brings it with --from 'mt_cli[{extra}] @ git+URL'"
        ) from error


# What a process runs out of

REASONS = {
    errno.ENOSPC: "no space left on the disk; free some of it",
    errno.EDQUOT: "no space left on the disk; free some of it",
    errno.EEXIST: "a file stands where a folder is needed",
    errno.ENOTDIR: "a file stands where a folder is needed",
    errno.ENOSYS: "the system lacks what several processes need (/dev/shm); use --workers 1",
}
"""Clear words for what the system calls by misleading ones."""


def reason_of(error: OSError) -> str:
    """What the system says, in words."""
    return REASONS.get(error.errno or 0, error.strerror or str(error))


MEMORY = "out of memory"
THREADS = "the system lets this process start no more threads"
SHORTAGE_HINTS = {
    MEMORY: "use smaller batches (--batch-size, training.tokens_per_batch) or a smaller model",
    THREADS: "use fewer (OMP_NUM_THREADS=1), or raise the limit (ulimit -u, ulimit -v)",
}
WORDS = {
    "can't allocate memory": MEMORY,
    "cannot allocate memory": MEMORY,
    "unable to allocate": MEMORY,
    "bad_alloc": MEMORY,
    "could not create a primitive": MEMORY,  # oneDNN
    "cublas_status_alloc_failed": MEMORY,
    "cublas_status_not_initialized": MEMORY,  # the first matrix product on a full GPU
    "failed to map segment from shared object": MEMORY,
    "out of memory": MEMORY,
    "can't start new thread": THREADS,
    "resource temporarily unavailable": THREADS,
}
"""What libraries say, in lower case, and what they mean."""


def shortage(error: BaseException) -> str | None:
    """What `error` says the machine lacks: `MEMORY` or `THREADS`; None if it is another error."""
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, OSError):
        return {errno.ENOMEM: MEMORY, errno.EAGAIN: THREADS}.get(error.errno or 0)
    if not isinstance(error, RuntimeError | ImportError | SystemError):
        return None
    said = str(error).lower()
    return next((meaning for words, meaning in WORDS.items() if words in said), None)


GPU_FAILURE = re.compile(
    "(CUDA|HIP|cuDNN|cuBLAS|NCCL)( [a-z]+)* (error|failed)"
    "|No (CUDA|HIP) GPUs|Found no NVIDIA driver|Unexpected error from cuda"
)


def gpu_failure(error: BaseException) -> str | None:
    """What a GPU or its driver failed at, in one line; None if `error` is another error."""
    said = str(error).strip()
    if not isinstance(error, RuntimeError) or not GPU_FAILURE.match(said):
        return None
    return said.splitlines()[0].rstrip(".")


Item = TypeVar("Item")
Result = TypeVar("Result")

WAITING_PER_WORKER = 3
"""Items submitted ahead. An executor's own map would read all items into memory at once."""


def allow_files(number: int) -> None:
    """Let this process have so many more files open at a time, as far as the system lets it."""
    with suppress(ImportError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            wanted = soft + number if hard == resource.RLIM_INFINITY else min(soft + number, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def ordered_map(
    job: Callable[[Item], Result], items: Iterable[Item], *, workers: int
) -> Iterator[Result]:
    """Apply `job` to each item, in order; with one worker, in this process.

    `job` is sent to each worker once: it must be picklable, and may be large.

    Raises:
        ResourceError: a worker died.
    """
    if workers == 1:
        yield from map(job, items)
        return
    # Fork is unsafe if threads are running, and tokenizers and torch start some.
    executor = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(job,),
    )
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            # A worker that is just starting cannot handle interrupts.
            with _interrupts_held():
                waiting.append(cast("Future[Result]", executor.submit(_do_job, item)))
            if len(waiting) >= workers * WAITING_PER_WORKER:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ResourceError(
            "a worker died, likely for lack of memory; use fewer with --workers"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C for this thread and the processes that it starts, where the system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_job: Callable[..., object] | None = None  # set once in each worker process


def _start_worker(job: Callable[..., object]) -> None:
    global _job  # noqa: PLW0603
    # Ctrl-C reaches every process of the group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _job = job
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process once the parent has ended; otherwise it would wait for items for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do_job(item: object) -> object:
    assert _job is not None
    return _job(item)
