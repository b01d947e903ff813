"""Tries faults: each in a forked process and a case of its own, several at a time.

Knows nothing of any one fault.
"""

import json
import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from faults.case import BrokenPromiseError, Case, Site
from faults.outcome import Outcome


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and what must hold then."""

    promise: int
    family: str
    name: str
    """Tells it from all others of its family and seed."""
    work: Callable[[Case], None]
    """Makes it and looks at what follows; raises `BrokenPromiseError`, or fills the case's `failed`."""
    start: Path | None = None
    """What the case's folder begins with a copy of; None is the template."""


@dataclass(frozen=True)
class _Running:
    fault: Fault
    pid: int
    started_at: float


def try_faults(faults: Iterable[Fault], site: Site, *, jobs: int) -> Iterator[Outcome]:
    """The outcome of each of `faults`, in the order in which they end; `jobs` are under way at a time."""
    running: dict[int, _Running] = {}
    for fault in faults:
        while len(running) >= jobs:
            yield _next_outcome(running)
        answer, told_by = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(answer)
            _try(fault, site, told_by)
        os.close(told_by)
        running[answer] = _Running(fault, pid, time.monotonic())
    while running:
        yield _next_outcome(running)


def _next_outcome(running: dict[int, _Running]) -> Outcome:
    answer = select.select(list(running), [], [])[0][0]
    with os.fdopen(answer, "rb") as pipe:
        told = pipe.read()
    ended = running.pop(answer)
    os.waitpid(ended.pid, 0)
    found: dict[str, Any] = (
        json.loads(told) if told else {"tried": 1, "failed": ["the process that tried it died"]}
    )
    fault = ended.fault
    return Outcome(
        promise=fault.promise,
        family=fault.family,
        fault=fault.name,
        tried=found["tried"],
        failed=tuple(found["failed"]),
        seconds=time.monotonic() - ended.started_at,
    )


def _try(fault: Fault, site: Site, told_by: int) -> NoReturn:
    """Be the process that tries `fault`."""
    tried, failed = 1, []
    try:
        with site.case(fault.name, start=fault.start) as case:
            try:
                fault.work(case)
            except BrokenPromiseError as error:
                case.failed.append(str(error))
            tried, failed = case.tried, case.failed
    except BrokenPromiseError as error:
        failed.append(str(error))
    except BaseException as error:
        failed = [f"the trial itself failed: {''.join(traceback.format_exception(error))}"]
    finally:
        with os.fdopen(told_by, "wb") as pipe:
            pipe.write(json.dumps({"tried": tried, "failed": failed}).encode())
        os._exit(0)
