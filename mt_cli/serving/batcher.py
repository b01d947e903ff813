"""Dynamic batching: requests that arrive while the model is busy are translated together."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.exceptions import HTTPException

from mt_cli.translation.result import Translation

BATCH_LINES = 256
"""Maximum lines per batch."""
LINES_OF_REQUEST = 64
"""Maximum lines per batch from one request."""
MAX_WAITING = 4096
"""Maximum lines in the queue; further requests are refused."""
RETRY_AFTER_S = 1


class Wanted(NamedTuple):
    """What a request wants for each line."""

    num_choices: int = 1
    """Number of translations."""
    is_detailed: bool = False
    """Whether to add alignment and words."""


@dataclass
class _Job:
    lines: list[str]
    wanted: Wanted
    is_gone: Callable[[], Awaitable[bool]]
    answer: "asyncio.Future[list[list[Translation]]]"
    found: list[list[Translation]] = field(default_factory=list)


class Batcher:
    """Queues the requests of an event loop for a model that is not thread-safe."""

    def __init__(self, translate: Callable[[list[str], Wanted], list[list[Translation]]]) -> None:
        """`translate` translates lines; it is called in its own thread."""
        self._translate = translate
        self._jobs: list[_Job] = []
        self._has_jobs = asyncio.Event()
        self.num_waiting = 0
        """Number of lines without an answer."""
        self.thread = ThreadPoolExecutor(1)

    async def translate(
        self, lines: list[str], wanted: Wanted, *, is_gone: Callable[[], Awaitable[bool]]
    ) -> list[list[Translation]]:
        """Translate `lines` as `wanted`.

        Once `is_gone`, the client's remaining lines are dropped.

        Raises:
            HTTPException: too many lines are waiting, or the client is gone.
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
        """Translate requests, forever."""
        while True:
            await self._has_jobs.wait()
            await asyncio.sleep(0)  # let requests that have arrived join the batch
            for job in self._jobs:
                is_gone = True
                with suppress(Exception):  # a broken connection also counts as gone
                    is_gone = await job.is_gone()
                if is_gone and not job.answer.done():
                    job.answer.set_exception(HTTPException(499, "the client closed the request"))
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
        # Unfinished requests go to the end of the queue, so that long requests take turns.
        jobs = [job for job, _ in served]
        waiting = [job for job in self._jobs if job not in jobs]
        self._jobs = [job for job in [*waiting, *jobs] if not job.answer.done()]
