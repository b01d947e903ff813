"""This process: signals that are remembered, workers in order, and what is known of shortages."""

import errno
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from started import Start

from mt_cli.errors import DataError, ResourceError
from mt_cli.machine import process
from mt_cli.machine.failures import MEMORY, SHORTAGE_HINTS, THREADS, gpu_failure, shortage
from mt_cli.machine.process import StopSignals
from mt_cli.machine.workers import WAITING_PER_WORKER, ordered_map, raise_file_limit

# Signals


@pytest.fixture
def obeyed() -> Iterator[list[int]]:
    """The signals that are answered in the way of before the block."""
    seen: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: seen.append(number))
        for number in StopSignals.SIGNALS
    }
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("numbers", "same_s", "received", "expected"),
    [
        ([signal.SIGHUP], -1.0, signal.SIGHUP, []),
        ([signal.SIGHUP, signal.SIGTERM, signal.SIGTERM], float("inf"), signal.SIGHUP, []),
        ([signal.SIGTERM, signal.SIGINT], -1.0, signal.SIGTERM, [signal.SIGINT]),
        ([signal.SIGXCPU] * 3, -1.0, signal.SIGXCPU, []),
    ],
    ids=["one", "soon after the first", "later", "repeated by the system"],
)
def test_the_first_signal_is_remembered_and_only_a_later_one_obeyed(
    obeyed: list[int],
    monkeypatch: pytest.MonkeyPatch,
    numbers: list[int],
    same_s: float,
    received: int,
    expected: list[int],
) -> None:
    monkeypatch.setattr(process, "SAME_S", same_s)
    with StopSignals() as signals:
        for number in numbers:
            signal.raise_signal(number)
    assert (signals.received, obeyed) == (received, expected)


def test_what_the_process_ignores_stays_ignored(obeyed: list[int]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGHUP)
    assert (signals.received, obeyed) == (None, [])


# Workers


def work(number: int) -> int:
    """The square of 0 to 9; 10 is an error, and 11 the end of the worker.

    Ctrl-C is left to the parent.
    """
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    if number == 10:
        raise DataError("ten is bad")
    if number == 11:
        os._exit(1)
    return number * number


def test_workers_give_results_in_order_until_one_fails_and_read_no_more_than_they_need() -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = ordered_map(work, items(), workers=2)
    assert [next(results) for _ in range(10)] == [number * number for number in range(10)]
    with pytest.raises(DataError, match="ten is bad"):
        next(results)
    assert len(taken) <= 11 + 2 * WAITING_PER_WORKER
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_dead_worker_is_a_resource_error() -> None:
    with pytest.raises(ResourceError, match="--workers"):
        list(ordered_map(work, range(11, 14), workers=2))


def test_workers_end_with_a_killed_parent(tmp_path: Path, start: Start) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from mt_cli.machine.workers import ordered_map\n"
        "def work(n):\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    list(ordered_map(work, range(2), workers=2))\n"
    )
    # The pipe stays open until the last process that can write to it is gone.
    parent = start(sys.executable, script, stderr=None)
    assert parent.stdout is not None
    assert parent.stdout.readline()
    parent.kill()
    parent.stdout.read()
    assert parent.wait(timeout=30) == -signal.SIGKILL


# What a process runs out of


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        (MemoryError(), MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), MEMORY),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), MEMORY),
        (RuntimeError("can't start new thread"), THREADS),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), THREADS),
        (RuntimeError("shapes differ"), None),
        (ValueError("out of memory"), None),
    ],
    ids=str,
)
def test_shortage_is_known_by_what_is_said(error: Exception, lacking: str | None) -> None:
    assert shortage(error) == lacking
    assert lacking is None or lacking in SHORTAGE_HINTS


@pytest.mark.parametrize(
    "said", ["CUDA error: no kernel image is available", "No CUDA GPUs are available"]
)
def test_a_failing_gpu_is_known_by_what_is_said(said: str) -> None:
    assert gpu_failure(torch.AcceleratorError(f"{said}.\nSearch")) == said
    assert gpu_failure(RuntimeError(said)) == said
    assert gpu_failure(ValueError(said)) is None
    assert gpu_failure(RuntimeError(f"shapes differ after a {said}")) is None


@pytest.mark.parametrize("room", [30, 10])
def test_more_files_may_be_open_as_far_as_the_system_lets_them(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    limits = [100, 100 + room]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, changed: limits.__setitem__(0, changed[0]))
    raise_file_limit(20)
    assert limits == [min(120, 100 + room), 100 + room]
