"""Progress bars on a terminal, and lines of progress elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Never

from tqdm import tqdm

from mt_cli.machine.log import has_listener
from mt_cli.machine.terminal import visible

log = logging.getLogger(__name__)
BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {elapsed}<{remaining}{postfix}"
"""In 80 columns, a training's facts leave a third of them for the bar."""
LINE_EVERY_S = 10.0
"""Seconds between two lines of progress where there is no bar."""


def progress_bar(
    label: str, *, unit: str, total: int | None = None, initial: int = 0, is_hidden: bool = False
) -> "tqdm[Never]":
    """A bar on stderr that vanishes when it is closed; disabled if nobody can see it."""
    can_be_seen = sys.stderr is not None and has_listener() and not is_hidden
    return tqdm(
        desc=visible(label),
        unit=f" {unit}",
        total=total,
        initial=initial,
        disable=None if can_be_seen else True,  # None: only if stderr is no terminal
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
        bar_format=BAR if total else None,
    )


@contextmanager
def progress_shown(
    label: str, *, unit: str, total: int | None = None, is_hidden: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show the progress of the work `label`, such as `translating test`, during the block.

    Call the yielded function with the number of `unit`, such as `lines`, that were done. Where
    stderr is no terminal, the log gets a line after each `LINE_EVERY_S`.
    """
    started_at = time.monotonic()
    last_line_at = started_at
    done = 0

    def update(count: int) -> None:
        nonlocal done, last_line_at
        done += count
        bar.update(count)
        now = time.monotonic()
        if bar.disable and not is_hidden and now - last_line_at >= LINE_EVERY_S:
            last_line_at = now
            share = f"{done} {unit}"
            if total:
                share = f"{done} of {total} {unit}  {100 * done // total} %"
            log.info("%s  %s  elapsed %.0f s", label, share, now - started_at)

    with progress_bar(label, unit=unit, total=total, is_hidden=is_hidden) as bar:
        yield update
