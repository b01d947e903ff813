"""What happened between two log lines, and between two validations.

Knows step reports; reads their tensors only when asked, since reading waits for the device.
"""

import time
from dataclasses import dataclass

from torch import Tensor

from mt_cli.training.trainer import StepReport


@dataclass(frozen=True)
class Reading:
    """Means since the meter was last read."""

    step: int
    epoch: int
    loss: float
    nll: float
    lr: float
    grad_norm: float
    tgt_tokens_per_s: float

    def __str__(self) -> str:
        return (
            f"step {self.step}  epoch {self.epoch}  loss {self.loss:.4f}  nll {self.nll:.4f}  "
            f"lr {self.lr:.2e}  grad {self.grad_norm:.2f}  tok/s {self.tgt_tokens_per_s:.0f}"
        )


@dataclass(frozen=True)
class Stretch:
    """Means since the last validation."""

    epoch: int
    loss: float
    lr: float
    """Of its last update."""
    tgt_tokens_per_s: float


class Meter:
    """Gathers step reports; its clock stands still outside of training steps."""

    def __init__(self) -> None:
        self._reports: list[StepReport] = []
        self._seconds = 0.0
        self._resumed_at = time.perf_counter()
        self._last: StepReport | None = None
        # A stretch may have very many updates: of those, sums are kept, not reports.
        self._stretch_loss: Tensor | float = 0.0
        self._stretch_tokens = 0
        self._stretch_seconds = 0.0

    def add(self, report: StepReport) -> None:
        """Count one update."""
        self._reports.append(report)
        self._last = report
        self._stretch_loss = self._stretch_loss + report.loss.double() * report.tgt_tokens
        self._stretch_tokens += report.tgt_tokens

    def pause(self) -> None:
        """Stop the clock, for a validation say."""
        spent = time.perf_counter() - self._resumed_at
        self._seconds += spent
        self._stretch_seconds += spent

    def resume(self) -> None:
        """Let the clock run on."""
        self._resumed_at = time.perf_counter()

    @property
    def has_reports(self) -> bool:
        """Whether anything was added since the last reading."""
        return bool(self._reports)

    def read(self) -> Reading:
        """Means over the reports since the last reading (at least one), weighted by tokens."""
        reports, last = self._reports, self._reports[-1]
        tokens = sum(report.tgt_tokens for report in reports)
        loss = sum(float(report.loss) * report.tgt_tokens for report in reports) / tokens
        nll = sum(float(report.nll) * report.tgt_tokens for report in reports) / tokens
        self.pause()
        reading = Reading(
            last.step, last.epoch, loss, nll, last.lr, float(last.grad_norm), tokens / self._seconds
        )
        self._reports, self._seconds = [], 0.0
        self.resume()
        return reading

    def end_stretch(self) -> Stretch | None:
        """Means over the reports since the last stretch, weighted by tokens; None before the first update.

        Pauses the clock, since a validation follows.
        """
        self.pause()
        last = self._last
        if last is None:
            return None
        loss = float(self._stretch_loss) / self._stretch_tokens
        stretch = Stretch(last.epoch, loss, last.lr, self._stretch_tokens / self._stretch_seconds)
        self._stretch_loss, self._stretch_tokens, self._stretch_seconds = 0.0, 0, 0.0
        return stretch
