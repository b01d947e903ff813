"""Requests that wait for the model: what has come meanwhile is translated together."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Found = TypeVar("Found")
Choice = TypeVar("Choice")
"""One translation of a line."""
BATCH_LINES = 256
"""Most lines that are translated together."""
LINES_OF_REQUEST = 64
"""Most of them from one request, while others wait."""
MAX_WAITING = 4096
"""Lines. When more are waiting, further requests are refused."""


class BusyError(Exception):
    """Too many lines are waiting."""


class GoneError(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Wanted:
    """What a request wants of each line."""

    num_choices: int = 1
    with_alignment: bool = False


ONE_TEXT = Wanted()
"""The best translation, without more."""


@dataclass
class _Job(Generic[Choice]):
    lines: list[str]
    wanted: Wanted
    is_gone: Callable[[], Awaitable[bool]]
    answer: asyncio.Future[list[list[Choice]]]
    found: list[list[Choice]] = field(default_factory=list)


class Batcher(Generic[Choice]):
    """Answers requests of one event loop with a model that works for one thread at a time."""

    def __init__(self, translate: Callable[[list[str], Wanted], list[list[Choice]]]) -> None:
        """`translate` gives what is wanted of each line; it is called in its own thread."""
        self._translate = translate
        self._jobs: list[_Job[Choice]] = []
        self._has_jobs = asyncio.Event()
        self._num_waiting = 0
        self._thread = ThreadPoolExecutor(1)

    async def translate(
        self,
        lines: list[str],
        *,
        wanted: Wanted = ONE_TEXT,
        is_gone: Callable[[], Awaitable[bool]],
    ) -> list[list[Choice]]:
        """What is `wanted` of each of `lines`.

        Lines of a request that `is_gone` are not translated any more.

        Raises:
            BusyError: too many lines are waiting.
            GoneError: the request is gone.
        """
        if self._num_waiting + len(lines) > MAX_WAITING:
            raise BusyError
        job = _Job(lines, wanted, is_gone, asyncio.get_running_loop().create_future())
        self._num_waiting += len(lines)
        self._jobs.append(job)
        self._has_jobs.set()
        try:
            return await job.answer
        finally:
            self._num_waiting -= len(lines)

    async def call(self, function: Callable[[], Found]) -> Found:
        """What `function` returns, called between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def run(self) -> None:
        """Translate what comes, for ever."""
        while True:
            await self._has_jobs.wait()
            await asyncio.sleep(0)  # what has arrived comes along
            await self._drop_gone()
            if self._jobs:
                await self._translate_some()
            if not self._jobs:
                self._has_jobs.clear()

    async def _drop_gone(self) -> None:
        for job in self._jobs:
            try:
                is_gone = await job.is_gone()
            except Exception:  # then nobody can be answered either
                is_gone = True
            if is_gone and not job.answer.done():
                job.answer.set_exception(GoneError())
        self._jobs = [job for job in self._jobs if not job.answer.done()]

    async def _translate_some(self) -> None:
        """Translate the next lines of the requests that have waited longest."""
        wanted = self._jobs[0].wanted
        served: list[tuple[_Job[Choice], int]] = []
        lines: list[str] = []
        for job in self._jobs:
            room = min(LINES_OF_REQUEST, BATCH_LINES - len(lines))
            if job.wanted == wanted and room:
                part = job.lines[len(job.found) :][:room]
                served.append((job, len(part)))
                lines += part
        try:
            found = await self.call(lambda: self._translate(lines, wanted))
        except Exception as error:
            for job, _ in served:
                if not job.answer.done():
                    job.answer.set_exception(error)
        else:
            for job, size in served:
                job.found += found[:size]
                found = found[size:]
                if len(job.found) == len(job.lines) and not job.answer.done():
                    job.answer.set_result(job.found)
        # Who was served and is not done goes to the end, so that long requests take turns.
        jobs = [job for job, _ in served]
        others = [job for job in self._jobs if all(job is not each for each in jobs)]
        self._jobs = [job for job in [*others, *jobs] if not job.answer.done()]
