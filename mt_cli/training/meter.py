"""Measures training between two log lines, and between two validations."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from mt_cli.training.optimizer import copy_into
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


@dataclass
class Totals:
    """Sums over the updates since some moment; skipped updates count as such only."""

    loss: float = 0.0
    nll: float = 0.0
    tgt_tokens: float = 0.0
    skipped: float = 0.0
    seconds: float = 0.0


class Meter:
    """Sums up step reports; its clock runs from `resume` to `pause`, during updates only.

    It reads their tensors only when asked, all at once, because that waits for the device.
    """

    def __init__(self) -> None:
        self._since_log = Totals()
        self._since_validation = Totals()
        self._grad_norm = 0.0
        """Of the last update that was not skipped."""
        self._skipped_in_a_row = 0.0
        self._skipped_before_log = 0.0
        """Skipped updates before those since the last log line."""
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
        return int(self._since_log.skipped), int(self._skipped_in_a_row)

    def read(self, *, since_validation: bool = False) -> Reading | None:
        """Means since the last reading of the kind, weighted by tokens; None if nothing counted."""
        self._read_reports()
        totals = self._since_validation if since_validation else self._since_log
        if self._report is None or not totals.tgt_tokens:
            return None
        self._count_seconds()
        reading = Reading(
            step=self._report.step,
            epoch=self._report.epoch,
            loss=totals.loss / totals.tgt_tokens,
            nll=totals.nll / totals.tgt_tokens,
            lr=self._report.lr,
            grad_norm=self._grad_norm,
            tgt_tokens_per_s=totals.tgt_tokens / totals.seconds,
            skipped=int(self._skipped_before_log + self._since_log.skipped),
        )
        if since_validation:
            self._since_validation = Totals()
        else:
            self._skipped_before_log += totals.skipped
            self._since_log = Totals()
        return reading

    def state_dict(self) -> dict[str, Tensor]:
        """All that has been summed up and not yet been logged, by name, for a checkpoint."""
        self._read_reports()
        self._count_seconds()
        skips = (self._skipped_in_a_row, self._skipped_before_log)
        numbers = {
            "meter:since_log": astuple(self._since_log),
            "meter:since_validation": astuple(self._since_validation),
            "meter:grad_norm": (self._grad_norm,),
            "meter:skips": skips,
        }
        return {name: torch.tensor(each, dtype=torch.float64) for name, each in numbers.items()}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state_dict()` returned; raises as `copy_into` does."""
        saved = self.state_dict()
        copy_into(saved, tensors)
        self._since_log = Totals(*saved["meter:since_log"].tolist())
        self._since_validation = Totals(*saved["meter:since_validation"].tolist())
        self._grad_norm = saved["meter:grad_norm"].item()
        self._skipped_in_a_row, self._skipped_before_log = saved["meter:skips"].tolist()

    def _read_reports(self) -> None:
        """Add what the unread reports hold."""
        if not self._unread:
            return
        measured: list[Tensor] = []
        for report in self._unread:
            measured += [report.loss, report.nll, report.grad_norm, report.skipped]
        rows = torch.stack(measured).view(-1, 4).tolist()  # waits once
        for report, (loss, nll, grad_norm, skipped) in zip(self._unread, rows, strict=True):
            self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
            if not skipped:
                self._grad_norm = grad_norm
            for totals in (self._since_log, self._since_validation):
                if skipped:
                    totals.skipped += 1
                else:
                    totals.loss += loss * report.tgt_tokens
                    totals.nll += nll * report.tgt_tokens
                    totals.tgt_tokens += report.tgt_tokens
        self._unread.clear()

    def _count_seconds(self) -> None:
        """Add the seconds since the last count, if the clock runs."""
        if self._counted_to is not None:
            now = time.perf_counter()
            elapsed_s = now - self._counted_to
            self._since_log.seconds += elapsed_s
            self._since_validation.seconds += elapsed_s
            self._session_s += elapsed_s
            self._counted_to = now
