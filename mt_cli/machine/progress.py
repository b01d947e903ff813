"""Progress bars: on stderr, only where a person watches it.

Knows nothing of what progresses.
"""

import logging
import sys
from typing import Never

from tqdm import tqdm


def progress_bar(
    *, label: str | None = None, unit: str, total: int | None = None, initial: int = 0, delay_s: float = 0
) -> "tqdm[Never]":
    """A bar that vanishes when done; hidden if stderr is closed or no terminal, or shows only warnings."""
    return tqdm(
        desc=label,
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
