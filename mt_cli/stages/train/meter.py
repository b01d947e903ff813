"""What happened between two log lines.

Knows step reports; reads their tensors only when asked, since reading waits for the device.
"""

import time
from dataclasses import dataclass

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


class Meter:
    """Gathers step reports; its clock stands still outside of training steps."""

    def __init__(self) -> None:
        self._reports: list[StepReport] = []
        self._seconds = 0.0
        self._resumed_at = time.perf_counter()

    def add(self, report: StepReport) -> None:
        """Count one update."""
        self._reports.append(report)

    def pause(self) -> None:
        """Stop the clock, for a validation say."""
        self._seconds += time.perf_counter() - self._resumed_at

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
