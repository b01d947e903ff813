"""Signals that ask a long command to end.

Knows signals, not what they interrupt.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

SAME_S = 1.0
"""Signals within this time count as one: a launcher forwards what the whole process group received."""


class Terminated(BaseException):
    """SIGTERM came outside a block that answers it."""


@contextmanager
def termination_raised() -> Iterator[None]:
    """Within the block, SIGTERM raises `Terminated`, so that what is half done is cleared away.

    A signal that the process ignores stays ignored.
    """
    previous = signal.getsignal(signal.SIGTERM)
    if previous != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated


class StopSignals:
    """Within its block, the first signal is only recorded; another one, after `SAME_S`, is obeyed.

    A signal that the process ignores, as under `nohup`, stays ignored.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.received: int | None = None
        self._received_at = 0.0
        handlers = {number: signal.getsignal(number) for number in self.SIGNALS}
        self._previous = {n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN}

    def __enter__(self) -> Self:
        for number in self._previous:
            signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = number, time.monotonic()
        elif time.monotonic() - self._received_at > SAME_S:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
