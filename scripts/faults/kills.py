"""Kills: `kill -9` at one of the calls that change files, and of real processes at any moment."""

import contextlib
import functools
import itertools
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from faults.case import BrokenPromiseError, Case, Site, clipped, expect
from faults.plan import KILLS, Strike
from faults.targets import Target, measured_targets
from faults.trial import Fault
from faults.workspace import TRAIN

FAMILY = "kills"
KILLS_EACH, QUICK_EACH = 24, 1
LONG_KILLS = 48
"""Of a training, which makes the most calls."""
REAL_KILLS = 6


def kills(site: Site) -> Iterator[Fault]:
    """Kills at calls that are spread over each command, then kills of processes of their own."""
    draw = random.Random(site.seed)
    for target in measured_targets(site):
        many = LONG_KILLS if target.name == "train" else KILLS_EACH
        for at in spread(target.calls, QUICK_EACH if site.is_quick else many, draw):
            strike = Strike(draw.choice(KILLS), at)
            yield Fault(
                promise=1,
                family=FAMILY,
                name=f"{target.name}: {strike}",
                work=functools.partial(_kill, target, strike),
                start=target.start,
            )
        if target.name == "train" and not site.is_quick:
            for number in range(REAL_KILLS):
                share = (number + draw.random()) / REAL_KILLS
                yield Fault(
                    promise=1,
                    family=FAMILY,
                    name=f"a real process after {share:.2f} of its time",
                    work=functools.partial(_kill_process, target, share),
                    start=target.start,
                )


def spread(calls: int, count: int, draw: random.Random) -> list[int]:
    """`count` of the numbers from 1 to `calls`, one of each of as many equal stretches."""
    count = min(count, calls)
    edges = [1 + calls * i // count for i in range(count + 1)]
    return [draw.randrange(begin, end) for begin, end in itertools.pairwise(edges)]


def _kill(target: Target, strike: Strike, case: Case) -> None:
    ended = case.call(*target.command, strike=strike, before=target.before)
    expect(ended.was_struck_dead, f"was not killed: ended with {ended.code}: {clipped(ended.err)}")
    try:
        target.follow_up(case)
    except BrokenPromiseError as error:
        raise BrokenPromiseError(f"{error} (killed at {ended.seen.struck})") from error


def _kill_process(target: Target, share: float, case: Case) -> None:
    """Kill a process of its own after a `share` of the seconds that it takes to the end."""
    command = [sys.executable, "-m", "mt_cli", *TRAIN]
    started_at = time.monotonic()
    subprocess.run([*command, "--run", "runs/timed"], cwd=case.folder, capture_output=True, check=True)
    seconds = time.monotonic() - started_at
    shutil.rmtree(case.folder / "runs" / "timed")
    process = subprocess.Popen(command, cwd=case.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds * share)
    process.kill()
    process.wait()
    target.follow_up(case)
