"""Measures training between two log lines, and between two validations."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.training.precision import copy_into
from mt_cli.training.trainer import StepReport

MAX_UNREAD = 1000
UNTIMED_UPDATES = 3
"""The first updates of a session are slower: kernels are chosen and memory is taken."""
UPDATES_FOR_AN_ESTIMATE = 20
RECENT_UPDATES = 200
"""Their speed tells how long the others will take."""


@dataclass(frozen=True)
class Reading:
    """Means since the last log line, or since the last validation; skipped updates do not count."""

    step: int
    epoch: int
    loss: float
    nll: float
    lr: float
    grad_norm: float
    """Of the last update that was not skipped."""
    tgt_tokens_per_s: float
    skipped: int
    """Updates skipped since training began."""

    def __str__(self) -> str:
        skipped = f"  skipped {self.skipped}" if self.skipped else ""
        return (
            f"step {self.step}  epoch {self.epoch}  loss {self.loss:.4f}  nll {self.nll:.4f}  "
            f"lr {self.lr:.2e}  grad {self.grad_norm:.2f}  "
            f"tok/s {self.tgt_tokens_per_s:.0f}{skipped}"
        )


class Meter:
    """Sums up step reports; its clock runs from `resume` to `pause`, during updates only.

    It reads their tensors only when asked, all at once, because that waits for the device.
    """

    def __init__(self) -> None:
        # One row since the last log line and one since the last validation: loss, nll, tokens,
        # and skipped updates, (2, 4). Their seconds are (2,).
        self._sums = torch.zeros(2, 4, dtype=torch.float64)
        self._seconds = torch.zeros(2, dtype=torch.float64)
        # (3,): norm of the last gradient that counted, skips in a row, and all skips before those
        # since the last log line.
        self._last = torch.zeros(3, dtype=torch.float64)
        self._report: StepReport | None = None
        self._unread: list[StepReport] = []
        self._counted_to: float | None = None
        self.updates = 0
        """Updates of this session."""
        self._session_s = 0.0
        self._ends = deque[float](maxlen=RECENT_UPDATES + 1)
        """Seconds of this session after each of its latest updates, without the first ones."""

    @property
    def has_estimate(self) -> bool:
        """Whether enough updates were timed to tell how long the others will take."""
        return self.updates >= UPDATES_FOR_AN_ESTIMATE

    @property
    def seconds_per_update(self) -> float:
        """Of the latest updates, validations not included."""
        if not self._ends:
            return 0.0
        return (self._ends[-1] - self._ends[0]) / max(1, len(self._ends) - 1)

    def add(self, report: StepReport) -> None:
        """Count one update. It rarely waits for the device: at the first estimate, for instance."""
        self._report = report
        self._unread.append(report)
        self.updates += 1
        if len(self._unread) == MAX_UNREAD or self.updates == UPDATES_FOR_AN_ESTIMATE:
            self._read_reports()
        if self.updates >= UNTIMED_UPDATES:
            self._count_seconds()
            self._ends.append(self._session_s)

    def pause(self) -> None:
        """Stop the clock, for a validation for example."""
        self._count_seconds()
        self._counted_to = None

    def resume(self) -> None:
        """Start the clock again."""
        self._counted_to = time.perf_counter()

    def num_skipped(self) -> tuple[int, int]:
        """Updates that were not finite: since the last log line, and in a row until now."""
        self._read_reports()
        return int(self._sums[0, 3]), int(self._last[1])

    def read(self, *, since_validation: bool = False) -> Reading | None:
        """Means since the last reading of the kind, weighted by tokens; None if nothing counted."""
        self._read_reports()
        row = int(since_validation)
        loss, nll, tokens, skipped = self._sums[row].tolist()
        if self._report is None or not tokens:
            return None
        self._count_seconds()
        grad_norm, _, skipped_before = self._last.tolist()
        reading = Reading(
            step=self._report.step,
            epoch=self._report.epoch,
            loss=loss / tokens,
            nll=nll / tokens,
            lr=self._report.lr,
            grad_norm=grad_norm,
            tgt_tokens_per_s=tokens / float(self._seconds[row]),
            skipped=int(skipped_before + skipped),
        )
        self._sums[row] = 0.0
        self._seconds[row] = 0.0
        if not since_validation:
            self._last[2] += skipped
        return reading

    def state_dict(self) -> dict[str, Tensor]:
        """All that has been summed up and not yet been logged, by name, for a checkpoint."""
        self._read_reports()
        self._count_seconds()
        return {
            "meter:sums": self._sums,
            "meter:seconds": self._seconds,
            "meter:last": self._last,
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state_dict()` returned; raises as `copy_into` does."""
        copy_into(self.state_dict(), tensors)

    def _read_reports(self) -> None:
        """Add what the unread reports hold."""
        if not self._unread:
            return
        measured: list[Tensor] = []
        for report in self._unread:
            measured += [report.loss, report.nll, report.grad_norm, report.skipped]
        rows = torch.stack(measured).view(-1, 4).tolist()  # waits once
        for report, (loss, nll, grad_norm, skipped) in zip(self._unread, rows, strict=True):
            if skipped:
                self._sums[:, 3] += 1
                self._last[1] += 1
            else:
                mean = torch.tensor([loss, nll, 1.0, 0.0], dtype=torch.float64)
                self._sums += mean * report.tgt_tokens
                self._last[0] = grad_norm
                self._last[1] = 0
        self._unread.clear()

    def _count_seconds(self) -> None:
        """Add the seconds since the last count, if the clock runs."""
        if self._counted_to is not None:
            now = time.perf_counter()
            self._seconds += now - self._counted_to
            self._session_s += now - self._counted_to
            self._counted_to = now
