"""Worker processes that return results in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import TypeVar, cast

from mt_cli.errors import ResourceError

Item = TypeVar("Item")
Result = TypeVar("Result")
WAITING_PER_WORKER = 3
"""Items submitted ahead per worker; Executor.map would read all items into memory at once."""


def raise_file_limit(number: int) -> None:
    """Raise this process's limit of open files by `number`, as far as the system allows."""
    with suppress(ImportError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            wanted = soft + number if hard == resource.RLIM_INFINITY else min(soft + number, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def ordered_map(
    job: Callable[[Item], Result], items: Iterable[Item], *, workers: int
) -> Iterator[Result]:
    """Yield `job(item)` for each item, in order; with one worker, in this process.

    `job` is sent to each worker once, so it must be picklable and may be large.

    Raises:
        ResourceError: a worker died.
    """
    if workers == 1:
        yield from map(job, items)
        return
    # Fork is unsafe while threads run, and tokenizers and torch start some.
    executor = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(job,),
    )
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            # A starting worker cannot handle interrupts yet.
            with _interrupts_held():
                waiting.append(cast("Future[Result]", executor.submit(_do_job, item)))
            if len(waiting) >= workers * WAITING_PER_WORKER:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ResourceError(
            "a worker process died, probably out of memory; use fewer --workers"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C for this thread and the processes that it starts, if the system supports it."""
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
    # Ctrl-C reaches every process in the group, but only the parent should handle it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _job = job
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the parent has ended; otherwise it would wait for items forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do_job(item: object) -> object:
    assert _job is not None
    return _job(item)
