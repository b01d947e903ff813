"""Workers: results in order, errors as they were, and an end that is clean."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mt_cli.errors import DataError, ResourceError
from mt_cli.machine.process import WAITING_PER_WORKER, ordered_map


def square(number: int) -> int:
    return number * number


def fail_at_three(number: int) -> int:
    if number == 3:
        raise DataError("three is bad")
    return number


def die(number: int) -> int:
    os._exit(1)


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order(workers: int) -> None:
    assert list(ordered_map(square, range(20), workers=workers)) == [n * n for n in range(20)]


@pytest.mark.parametrize("workers", [1, 2])
def test_error_of_a_job_arrives_as_it_was(workers: int) -> None:
    with pytest.raises(DataError, match="three is bad"):
        list(ordered_map(fail_at_three, range(10), workers=workers))


def test_items_are_read_only_as_they_are_needed() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = ordered_map(square, items(), workers=2)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert len(taken) <= 2 * WAITING_PER_WORKER


def sigint_is_left_to_the_parent(_: int) -> bool:
    is_blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return signal.getsignal(signal.SIGINT) == signal.SIG_IGN and not is_blocked


def test_workers_leave_ctrl_c_to_their_parent() -> None:
    assert all(ordered_map(sigint_is_left_to_the_parent, range(3), workers=2))
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_dead_worker_is_a_resource_error() -> None:
    with pytest.raises(ResourceError, match="--workers"):
        list(ordered_map(die, range(3), workers=2))


def test_processes_that_cannot_be_started_are_a_resource_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")  # as without /dev/shm

    monkeypatch.setattr("mt_cli.machine.process.ProcessPoolExecutor", fail)
    with pytest.raises(ResourceError, match="--workers 1"):
        list(ordered_map(square, range(3), workers=2))


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from mt_cli.machine.process import ordered_map\n"
        "def work(n):\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    list(ordered_map(work, range(2), workers=2))\n"
    )
    # The pipe stays open until the last process that can write to it is gone.
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline()
        parent.kill()
        parent.stdout.read()
        assert parent.wait(timeout=30) == -signal.SIGKILL
