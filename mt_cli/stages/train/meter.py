"""What happened between two log lines, and between two validations.

Knows step reports; reads their tensors only when asked, since reading waits for the device. What it has
added up is saved with a checkpoint, so that a resumed training logs what an uninterrupted one would.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.training.trainer import StepReport

SINCE_LOG, SINCE_VALIDATION, LAST = "meter:since_log", "meter:since_validation", "meter:last"
"""Names of the tensors that a checkpoint keeps."""


@dataclass(frozen=True)
class Reading:
    """Means since the meter was last read; skipped updates do not count."""

    step: int
    epoch: int
    loss: float
    nll: float
    lr: float
    grad_norm: float
    """Of the last update that was not skipped."""
    tgt_tokens_per_s: float
    skipped: int = 0
    """Updates skipped since training began."""

    def __str__(self) -> str:
        skipped = f"  skipped {self.skipped}" if self.skipped else ""
        return (
            f"step {self.step}  epoch {self.epoch}  loss {self.loss:.4f}  nll {self.nll:.4f}  "
            f"lr {self.lr:.2e}  grad {self.grad_norm:.2f}  tok/s {self.tgt_tokens_per_s:.0f}{skipped}"
        )


@dataclass(frozen=True)
class Stretch:
    """Means since the last validation."""

    epoch: int
    loss: float
    lr: float
    """Of its last update."""
    tgt_tokens_per_s: float


@dataclass(frozen=True)
class Skips:
    """Updates that were skipped because they were not finite."""

    since_log: int
    in_a_row: int
    """Up to the last update."""


class Meter:
    """Gathers step reports; its clock stands still outside of training steps."""

    def __init__(self) -> None:
        self._since_log, self._since_validation = _Sums(), _Sums()
        self._report: StepReport | None = None
        # (3,): norm of the last gradient that counted, skips in a row, all skips before those since the log
        self._last = torch.zeros(3, dtype=torch.float64)
        self._counted_to: float | None = time.perf_counter()

    def add(self, report: StepReport) -> None:
        """Count one update; waits for nothing."""
        row, was_skipped = _row(report), report.skipped > 0
        for sums in (self._since_log, self._since_validation):
            sums.add(row)
        norm, in_a_row, before = self._last.to(row.device, non_blocking=True).unbind()
        norm = torch.where(was_skipped, norm, report.grad_norm.double())
        self._last = torch.stack([norm, (in_a_row + 1) * report.skipped, before])
        self._report = report

    def pause(self) -> None:
        """Stop the clock, for a validation say."""
        self._count_seconds()
        self._counted_to = None

    def resume(self) -> None:
        """Let the clock run on."""
        self._counted_to = time.perf_counter()

    def skips(self) -> Skips:
        """The updates that were skipped."""
        self._fetch()
        return Skips(int(self._since_log.totals[3]), int(self._last[1]))

    def read(self) -> Reading | None:
        """Means over the reports since the last reading, weighted by tokens; None if none of them counts."""
        self._fetch()
        report, (loss, nll, tokens, skipped) = self._report, self._since_log.totals.tolist()
        if report is None or not tokens:
            return None
        self._count_seconds()
        norm, in_a_row, before = self._last.tolist()
        self._last = torch.tensor([norm, in_a_row, before + skipped], dtype=torch.float64)
        rate = tokens / self._since_log.seconds
        self._since_log = _Sums()
        return Reading(
            report.step,
            report.epoch,
            loss / tokens,
            nll / tokens,
            report.lr,
            norm,
            rate,
            int(before + skipped),
        )

    def end_stretch(self) -> Stretch | None:
        """Means over the reports since the last stretch, weighted by tokens; None if none of them counts.

        Pauses the clock, since a validation follows.
        """
        self.pause()
        report, (loss, _, tokens, _) = self._report, self._since_validation.totals.tolist()
        if report is None or not tokens:
            return None
        rate = tokens / self._since_validation.seconds
        self._since_validation = _Sums()
        return Stretch(report.epoch, loss / tokens, report.lr, rate)

    def tensors(self) -> dict[str, Tensor]:
        """All that has been added up and not yet been read, by name."""
        self._count_seconds()
        return {
            SINCE_LOG: self._since_log.as_tensor(),
            SINCE_VALIDATION: self._since_validation.as_tensor(),
            LAST: self._last,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `tensors()` returned; checkpoints of older versions have nothing of it."""
        if SINCE_LOG in tensors:
            self._since_log = _Sums.of(tensors[SINCE_LOG])
            self._since_validation = _Sums.of(tensors[SINCE_VALIDATION])
            self._last = tensors[LAST]

    def _fetch(self) -> None:
        """Bring what a log line needs from the device, all at once: each transfer waits for the device."""
        fetched = torch.cat([self._since_log.totals, self._last]).cpu()
        self._since_log.totals, self._last = fetched[:4], fetched[4:]

    def _count_seconds(self) -> None:
        """Add what the clock has run on, if it runs."""
        if self._counted_to is None:
            return
        now = time.perf_counter()
        for sums in (self._since_log, self._since_validation):
            sums.seconds += now - self._counted_to
        self._counted_to = now


class _Sums:
    """Sums over updates, on their device: loss and nll of tokens, tokens, skipped updates; and seconds."""

    def __init__(self) -> None:
        self.totals = torch.zeros(4, dtype=torch.float64)
        self.seconds = 0.0

    def add(self, row: Tensor) -> None:
        """Add `row` (4,)."""
        self.totals = self.totals.to(row.device, non_blocking=True) + row

    def as_tensor(self) -> Tensor:
        """Totals and seconds, (5,)."""
        return torch.cat([self.totals.cpu(), torch.tensor([self.seconds], dtype=torch.float64)])

    @classmethod
    def of(cls, tensor: Tensor) -> "_Sums":
        """What `as_tensor()` returned."""
        sums = cls()
        sums.totals, sums.seconds = tensor[:4], float(tensor[4])
        return sums


def _row(report: StepReport) -> Tensor:
    """What one update adds to the sums, (4,): nothing but itself if it was skipped."""
    one = torch.ones_like(report.loss)
    summed = torch.stack([report.loss, report.nll, one]).double() * report.tgt_tokens
    counted = torch.where(report.skipped > 0, 0.0, summed)
    return torch.cat([counted, report.skipped.double().unsqueeze(0)])
