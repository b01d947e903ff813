"""Programs that are measured against each other, each in a process of its own.

So that its peak memory can be told, and that it works only while the others wait.
"""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from benchmarks.memory import KIB, MB

Task = TypeVar("Task")
Answer = TypeVar("Answer")


@dataclass
class Contender(Generic[Task, Answer]):
    """A program in its process, and what has been measured of it."""

    pipe: Connection
    ready_s: float
    """From the start of the process until it could take a task."""
    seconds: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    def ask(self, task: Task) -> Answer:
        """Its answer; the time that it took, and the most memory so far, are kept.

        Raises:
            EOFError: the process has ended; it says why on stderr.
        """
        answer: Answer
        try:
            self.pipe.send(task)
            answer, seconds, self.peak_mb = self.pipe.recv()
        except OSError as error:
            raise EOFError from error
        self.seconds.append(seconds)
        return answer

    @property
    def median_s(self) -> float:
        """Of all tasks but the first, which warms up."""
        return statistics.median(self.seconds[1:])

    def dismiss(self) -> None:
        """End its process, if it has not ended."""
        with suppress(OSError):
            self.pipe.send(None)


def start(build: Callable[..., Callable[[Task], Answer]], *args: object) -> Contender[Task, Answer]:
    """A new process that calls `build(*args)` once, and what that gives with each task.

    Raises:
        EOFError: the process has ended; it says why on stderr.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    begin = time.perf_counter()
    spawn.Process(target=_serve, args=(build, args, there), daemon=True).start()
    there.close()
    here.recv()
    return Contender(here, time.perf_counter() - begin)


@contextmanager
def left_out_if_ended(name: str) -> Iterator[None]:
    """Say on stderr that the contender `name` is left out, where its process has ended."""
    try:
        yield
    except EOFError:
        print(f"left out: {name}: its process has ended, see above", file=sys.stderr)


def _serve(
    build: Callable[..., Callable[[Task], Answer]], args: tuple[object, ...], pipe: Connection
) -> None:
    work = build(*args)
    pipe.send("ready")
    with suppress(EOFError, ConnectionError):  # whoever asks has ended
        while (task := pipe.recv()) is not None:
            begin = time.perf_counter()
            answer = work(task)
            seconds = time.perf_counter() - begin
            pipe.send((answer, seconds, _peak_mb()))


def _peak_mb() -> float:
    """The most memory so far: of the GPU where PyTorch has used one, else of this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated() / MB)
    unit = 1 if sys.platform == "darwin" else KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB
