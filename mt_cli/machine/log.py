"""The log: on stderr for people, and in a file."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from mt_cli.machine.atomic import reason_of, write_errors_named
from mt_cli.machine.terminal import print_stderr, visible

log = logging.getLogger(__name__)


def set_up_logging(*, is_quiet: bool, is_verbose: bool) -> None:
    """Send the package's log to stderr: warnings, progress unless quiet, details if verbose."""
    logging.raiseExceptions = False  # a log that cannot be written must not hide what is logged
    handler = _StderrHandler()
    handler.setLevel(logging.WARNING if is_quiet else logging.DEBUG if is_verbose else logging.INFO)
    package = logging.getLogger("mt_cli")
    package.handlers = [handler]
    package.setLevel(logging.DEBUG)
    package.propagate = False


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        print_stderr(f"{level}{self.format(record)}")


class _LogFile(logging.FileHandler):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), kept="\n\t")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 — logging's name
        """Give up, with a warning: a log is never what work is for."""
        error = sys.exception()
        logging.getLogger("mt_cli").removeHandler(self)
        reason = reason_of(error) if isinstance(error, OSError) else error
        log.warning("%s: cannot be written: %s; the work goes on", self.baseFilename, reason)


@contextlib.contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Add all that the package logs in the block to the end of the file `path`, details too.

    Raises:
        ResourceError: it cannot be opened.
    """
    with write_errors_named(path):
        handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    package = logging.getLogger("mt_cli")
    previous = package.level
    package.setLevel(logging.DEBUG)
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(previous)
        with contextlib.suppress(OSError):
            handler.close()


def has_listener(level: int = logging.INFO) -> bool:
    """Whether messages of `level` reach a person, and not only a file.

    INFO does not with `--quiet`, where `mt_cli` is used as a library, or where another process
    reports.
    """
    package = logging.getLogger("mt_cli")
    if not package.isEnabledFor(level):
        return False
    for handler in package.handlers:
        if handler.level <= level and not isinstance(handler, logging.FileHandler):
            return True
    return False
