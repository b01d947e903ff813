"""Requests that wait for the model: what has come meanwhile is translated together."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.exceptions import HTTPException

from mt_cli.translation.result import Translation

BATCH_LINES = 256
"""Most lines that are translated together."""
LINES_OF_REQUEST = 64
"""Most of them from one request, while others wait."""
MAX_WAITING = 4096
"""Lines. When more are waiting, further requests are refused."""
RETRY_AFTER_S = 1


class Wanted(NamedTuple):
    """What a request wants of each line."""

    num_choices: int = 1
    """How many translations."""
    is_detailed: bool = False
    """Whether with alignment and words."""


@dataclass
class _Job:
    lines: list[str]
    wanted: Wanted
    is_gone: Callable[[], Awaitable[bool]]
    answer: "asyncio.Future[list[list[Translation]]]"
    found: list[list[Translation]] = field(default_factory=list)


class Batcher:
    """Answers requests of one event loop with a model that works for one thread at a time."""

    def __init__(self, translate: Callable[[list[str], Wanted], list[list[Translation]]]) -> None:
        """`translate` gives what is wanted of each line; it is called in its own thread."""
        self._translate = translate
        self._jobs: list[_Job] = []
        self._has_jobs = asyncio.Event()
        self.num_waiting = 0
        """Lines that have no answer yet."""
        self.thread = ThreadPoolExecutor(1)

    async def translate(
        self, lines: list[str], wanted: Wanted, *, is_gone: Callable[[], Awaitable[bool]]
    ) -> list[list[Translation]]:
        """What is `wanted` of each of `lines`.

        Lines of a request that `is_gone` are not translated any more.

        Raises:
            HTTPException: too many lines are waiting, or the request is gone.
        """
        if not lines:
            return []
        if self.num_waiting + len(lines) > MAX_WAITING:
            raise HTTPException(
                503, "too many requests are waiting", {"Retry-After": str(RETRY_AFTER_S)}
            )
        job = _Job(lines, wanted, is_gone, asyncio.get_running_loop().create_future())
        self.num_waiting += len(lines)
        self._jobs.append(job)
        self._has_jobs.set()
        try:
            return await job.answer
        finally:
            self.num_waiting -= len(lines)

    async def run(self) -> None:
        """Translate what comes, for ever."""
        while True:
            await self._has_jobs.wait()
            await asyncio.sleep(0)  # what has arrived comes along
            for job in self._jobs:
                is_gone = True
                with suppress(Exception):  # a connection that broke is gone, too
                    is_gone = await job.is_gone()
                if is_gone and not job.answer.done():
                    job.answer.set_exception(HTTPException(499, "the request is gone"))
            self._jobs = [job for job in self._jobs if not job.answer.done()]
            if self._jobs:
                await self._translate_some()
            if not self._jobs:
                self._has_jobs.clear()

    async def _translate_some(self) -> None:
        """Translate the next lines of the requests that have waited longest."""
        wanted = self._jobs[0].wanted
        served: list[tuple[_Job, int]] = []
        lines: list[str] = []
        for job in self._jobs:
            room = min(LINES_OF_REQUEST, BATCH_LINES - len(lines))
            if job.wanted == wanted and room:
                part = job.lines[len(job.found) :][:room]
                served.append((job, len(part)))
                lines += part
        loop = asyncio.get_running_loop()
        try:
            translations = await loop.run_in_executor(self.thread, self._translate, lines, wanted)
        except Exception as error:
            for job, _ in served:
                if not job.answer.done():
                    job.answer.set_exception(error)
            translations = []
        for job, size in served:
            job.found += translations[:size]
            translations = translations[size:]
            if len(job.found) == len(job.lines) and not job.answer.done():
                job.answer.set_result(job.found)
        # Who was served and is not done goes to the end, so that long requests take turns.
        jobs = [job for job, _ in served]
        waiting = [job for job in self._jobs if job not in jobs]
        self._jobs = [job for job in [*waiting, *jobs] if not job.answer.done()]
