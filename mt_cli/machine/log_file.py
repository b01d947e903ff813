"""A log file that never stands in the way of the work.

Knows records and a file, nothing of what is logged.
"""

import logging
import sys
from contextlib import suppress
from pathlib import Path

from mt_cli.machine.audience import reaches_file
from mt_cli.machine.visible import VisibleFormatter

log = logging.getLogger(__name__)


class LogFile(logging.FileHandler):
    """Adds records to the end of a file; if it cannot, that is a warning, once, and the work goes on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        self._path = path
        self._has_failed = False
        self.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
        self.addFilter(reaches_file)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 — logging's name
        """Warn that `record` could not be written."""
        if self._has_failed:
            return
        self._has_failed = True
        error = sys.exception()
        reason = error.strerror if isinstance(error, OSError) else error
        log.warning("%s: cannot be written: %s; the work goes on without", self._path, reason)

    def close(self) -> None:
        """Close the file; what it still cannot take is lost."""
        with suppress(OSError):
            super().close()
