"""How far long work has come: a bar on a terminal, a line now and then elsewhere; always on stderr.

Knows nothing of what progresses.
"""

import logging
import sys
import time
from typing import Never, Self

from tqdm import tqdm

from mt_cli.machine.visible import visible

log = logging.getLogger(__name__)

LINE_EVERY_S = 10.0
"""Seconds between two lines where there is no bar."""


class ProgressDisplay:
    """Counts what is done of one piece of work, and shows it to whoever listens.

    It is a bar where stderr is a terminal, and else a line of the log after each `LINE_EVERY_S`. Both need
    log messages of level INFO to reach more than a file: `--quiet` turns them off, a library has none.
    """

    def __init__(self, label: str, *, unit: str, total: int | None = None, is_hidden: bool = False) -> None:
        """`label` is what happens, such as `translating test`; `unit` is counted, such as `lines`."""
        self._label, self._unit, self._total = label, unit, total
        self._bar = None if is_hidden else progress_bar(label=label, unit=f" {unit}", total=total)
        self._is_told = self._bar is not None and self._bar.disable
        self._started_at = self._told_at = time.monotonic()
        self.done = 0
        """Units so far."""

    def update(self, count: int) -> None:
        """Count `count` more."""
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        now = time.monotonic()
        if self._is_told and now - self._told_at >= LINE_EVERY_S:
            self._told_at = now
            log.info("%s", self._line(now - self._started_at))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _line(self, elapsed_s: float) -> str:
        """Such as `translating test  300 of 1000 lines  30 %  elapsed 21 s`."""
        if self._total:
            percent = 100 * self.done // self._total
            share = f"{self.done} of {self._total} {self._unit}  {percent} %"
        else:
            share = f"{self.done} {self._unit}"
        return f"{self._label}  {share}  elapsed {elapsed_s:.0f} s"


def progress_bar(
    *, label: str | None = None, unit: str, total: int | None = None, initial: int = 0, delay_s: float = 0
) -> "tqdm[Never]":
    """A bar that vanishes when done; hidden if stderr is closed or no terminal, or shows only warnings."""
    return tqdm(
        desc=None if label is None else visible(label),
        unit=unit,
        total=total,
        initial=initial,
        delay=delay_s,
        disable=None if _is_watched() else True,  # None: only if stderr is no terminal
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
    )


def _is_watched() -> bool:
    """Whether stderr is open and the package's log messages go to more than a file."""
    handlers = logging.getLogger("mt_cli").handlers
    listening = [h for h in handlers if h.level <= logging.INFO and not isinstance(h, logging.FileHandler)]
    return sys.stderr is not None and bool(listening)
