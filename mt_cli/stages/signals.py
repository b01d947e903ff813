"""Signals that ask a long command to end.

Knows signals, not what they interrupt.
"""

import signal
from types import FrameType, TracebackType
from typing import Self


class StopSignals:
    """Within its block, signals are remembered instead of obeyed; a second one is obeyed.

    One that the process ignores, as under `nohup`, stays ignored.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.received: int | None = None
        handlers = {number: signal.getsignal(number) for number in self.SIGNALS}
        self._previous = {n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN}

    def __enter__(self) -> Self:
        for number in self._previous:
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
