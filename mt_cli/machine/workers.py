"""Applies one job to many items in several processes; results come in order.

Knows neither the job nor the items.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar, cast

from mt_cli.errors import ResourceError

Item = TypeVar("Item")
Result = TypeVar("Result")

WAITING_PER_WORKER = 3
"""Items submitted ahead; limits memory, because an executor's own map would read all items at once."""


def ordered_map(job: Callable[[Item], Result], items: Iterable[Item], *, workers: int) -> Iterator[Result]:
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
        initargs=(pickle.dumps(job),),
    )
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            with _interrupts_held():  # a worker that is just starting cannot handle them
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
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C for this thread and the processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def usable_cores() -> int:
    """Cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on every system
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


_job: Callable[[object], object] | None = None  # set once in each worker process


def _start_worker(pickled_job: bytes) -> None:
    global _job  # noqa: PLW0603
    # Ctrl-C reaches every process of the group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _job = pickle.loads(pickled_job)
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
