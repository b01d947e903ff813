"""Signals that ask a process to stop."""

import signal
import time
from types import FrameType
from typing import Self

SAME_S = 1.0
"""Signals within this time count as one: a launcher forwards what its process group received."""


TERMINATING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU")
    if hasattr(signal, name)
)
"""What schedulers of clusters send before they end a job: they all mean the same here."""
REPEATED = getattr(signal, "SIGXCPU", None)
"""The system repeats it every second until the process ends."""


class StopSignals:
    """Within its block, the first signal is only recorded; another one, after `SAME_S`, is obeyed.

    A signal that the process ignores, as under `nohup`, stays ignored.
    """

    SIGNALS = (
        signal.SIGINT,
        *TERMINATING,
        *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []),
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
        elif number != REPEATED and time.monotonic() - self._received_at > SAME_S:
            self.__exit__()
            signal.raise_signal(number)
