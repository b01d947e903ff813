"""Signals that ask a long command to end.

Knows signals, not what they interrupt.
"""

import signal
from types import FrameType, TracebackType
from typing import Self


class StopSignals:
    """Within its block, SIGINT and SIGTERM are remembered instead of obeyed; a second one is obeyed."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous = {number: signal.getsignal(number) for number in self.SIGNALS}

    def __enter__(self) -> Self:
        for number in self.SIGNALS:
            signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
