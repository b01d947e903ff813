"""Worker processes, what this one may use, signals that ask it to end, and the git commit that it
runs.
"""

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Self, TypeVar, cast

from mt_cli.errors import ResourceError

Item = TypeVar("Item")
Result = TypeVar("Result")

WAITING_PER_WORKER = 3
"""Items submitted ahead; limits memory, because an executor's own map would read all items at once."""


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
    with _start_errors_explained():
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
            with (
                _start_errors_explained(),
                _interrupts_held(),
            ):  # a worker that is just starting cannot handle them
                waiting.append(cast("Future[Result]", executor.submit(_do_job, item)))
            if len(waiting) >= workers * WAITING_PER_WORKER:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ResourceError(
            "a worker process died, most likely for lack of memory; use fewer with --workers"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _start_errors_explained() -> Iterator[None]:
    """Say that processes cannot be started, as where memory or /dev/shm is missing."""
    try:
        yield
    except (OSError, ImportError) as error:  # Python imports what needs /dev/shm only now
        raise ResourceError(
            f"worker processes cannot be started ({error}); do without them: --workers 1"
        ) from error


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


# Signals that ask for an end

SAME_S = 1.0
"""Signals within this time count as one: a launcher forwards what the whole process group received."""


class StopSignals:
    """Within its block, the first signal is only recorded; another one, after `SAME_S`, is obeyed.

    A signal that the process ignores, as under `nohup`, stays ignored.
    """

    SIGNALS = tuple(
        getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self.received: int | None = None
        self._received_at = 0.0
        handlers = {number: signal.getsignal(number) for number in self.SIGNALS}
        self._previous = {
            n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN
        }

    def __enter__(self) -> Self:
        for number in self._previous:
            signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = number, time.monotonic()
        elif time.monotonic() - self._received_at > SAME_S:
            self.__exit__()
            signal.raise_signal(number)


PACKAGE = Path(__file__).resolve().parents[1]


def describe_checkout(package: Path = PACKAGE) -> dict[str, str | bool | None]:
    """`commit` of git, and whether the files of `package` differ from it (`commit_modified`).

    Empty where git is missing or does not track the package, as when it was installed.
    """
    # Without this question, an environment inside somebody's repository would name that
    # repository's commit.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {}
    changes = _git(package, "status", "--porcelain", "--", ".")
    return {"commit": _git(package, "rev-parse", "HEAD"), "commit_modified": bool(changes)}


def _git(folder: Path, *args: str) -> str | None:
    """What git prints in `folder`; None if it fails."""
    command = ["git", "--no-optional-locks", *args]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
