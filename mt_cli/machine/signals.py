"""Signals that ask a process to stop."""

import signal
import time
from types import FrameType
from typing import Self

SAME_S = 1.0
"""Signals within this time count as one: a launcher forwards what its process group received."""


class StopSignals:
    """Within its block, the first signal is only recorded; another one, after `SAME_S`, is obeyed.

    A signal that the process ignores, as under `nohup`, stays ignored.
    """

    SIGNALS = tuple(
        getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self.received: int | None = None
        self._received_at = 0.0
        handlers = {number: signal.getsignal(number) for number in self.SIGNALS}
        self._previous = {
            n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN
        }

    def __enter__(self) -> Self:
        for number in self._previous:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def remember(self, number: int) -> None:
        """Count signal `number`, which another process received, as this one's first."""
        if self.received is None:
            self.received = number
            self._received_at = time.monotonic()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.remember(number)
        elif time.monotonic() - self._received_at > SAME_S:
            self.__exit__()
            signal.raise_signal(number)
