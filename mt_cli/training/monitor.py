"""The one owner of reports about training, which does not depend on them.

They go to people, train.log, metrics.jsonl, status.json and an experiment tracker.
"""

import logging
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.machine.device import Runtime
from mt_cli.machine.facts import describe_processor
from mt_cli.machine.files import write_json
from mt_cli.machine.process import is_overloaded
from mt_cli.machine.terminal import format_duration, progress_bar, visible
from mt_cli.runs.checkpoint import CheckpointState
from mt_cli.runs.run import STATUS, Run, append_metrics, number_in, read_metrics
from mt_cli.training.optimizer import copy_into
from mt_cli.training.trackers import Tracker
from mt_cli.training.trainer import StepReport, Trainer
from mt_cli.training.validator import Sample, Validation, Validator
from mt_cli.training.warnings import warning_of_risen_loss

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


log = logging.getLogger(__name__)

TERMINAL_WIDTH = 80
"""Of the narrowest terminal that people use."""
COLUMNS = {
    "epoch": 5,
    "step": 8,
    "train loss": 11,
    "val nll": 8,
    "BLEU": 7,
    "lr": 8,
    "tok/s": 8,
    "elapsed": 9,
    "left": 9,
}
"""Widths of the table of validations, one space before each included; they and `best` are 79."""
TRACKED = ("loss", "nll", "lr", "grad_norm", "tgt_tokens_per_s")
LOAD_AFTER_S = 45.0
"""Seconds of training after which the mean load of a minute says something."""


class Monitor:
    """Reports how training goes."""

    def __init__(
        self, run: Run, trainer: Trainer, meter: Meter, *, elapsed_s: Callable[[], float]
    ) -> None:
        """`elapsed_s` gives the seconds of training so far, earlier sessions included."""
        self._run = run
        self._trainer = trainer
        self._meter = meter
        self._elapsed_s = elapsed_s
        self._tracker: Tracker | None = None
        self._bar = progress_bar(
            "training",
            unit="updates",
            total=trainer.total_steps,
            initial=trainer.step,
        )
        # A bar shows each step; elsewhere people read the lines.
        self._step_level = logging.INFO if self._bar.disable else logging.DEBUG
        self._has_header = False
        self._has_warned_of_load = False
        self._last: Validation | None = None
        self._validation_s = 0.0
        for record in read_metrics(run.metrics_path):
            if "validation_s" in record:
                self._validation_s = number_in(record, "validation_s", path=run.metrics_path)

    # Begin and end

    def log_start(
        self,
        config_path: Path,
        runtime: Runtime,
        validator: Validator,
        *,
        num_processes: int,
        num_train: int,
    ) -> None:
        """Say what is about to be trained, on what, and how much of it there is."""
        trainer = self._trainer
        training = self._run.config.training
        step = trainer.step

        device = describe_processor()
        if runtime.device.type == "cuda":
            device = torch.cuda.get_device_name(runtime.device)
        precision: str = runtime.precision
        if precision != self._run.config.decoding.precision:
            precision += f", validation in {self._run.config.decoding.precision}"
        threads = f"{torch.get_num_threads()}"
        if num_processes > 1:
            threads += f" in each of {num_processes} processes"
        per_epoch = f"{trainer.epoch_ends[0]:,} in" if trainer.epoch_ends else "less than"
        every = "after each epoch"
        if training.validate_every:
            every = f"every {training.validate_every:,}"
        batches = f"{training.tokens_per_batch:,} tokens a side at most"
        if training.accumulation > 1:
            batches += f", {training.accumulation} to an update"

        _log_facts(
            run=f"{self._run.folder}" + (f", resumed after update {step:,}" if step else ""),
            config=str(config_path),
            device=f"{runtime.device}: {device}",
            precision=precision,
            threads=threads,
            pairs=f"{num_train:,} to train on, {len(validator.sources):,} to validate on",
            parameters=f"{sum(each.numel() for each in trainer.model.parameters()):,}",
            updates=f"{trainer.total_steps:,}, {per_epoch} an epoch; validation {every}"
            + ("; CUDA graphs" if trainer.uses_graphs else ""),
            batches=f"{batches}, in {_counted(len(trainer.shapes), 'shape')}",
            BLEU=validator.bleu_signature,
        )

    @contextmanager
    def watching(self, tracker: Tracker | None) -> Iterator[None]:
        """Show a progress bar in the block, if stderr is a terminal; `tracker` gets the curves."""
        self._tracker = tracker
        try:
            yield
        finally:
            self._bar.close()

    def log_end(self) -> None:
        """Say how good the best checkpoint is, and whether the model has overfitted."""
        path = self._run.metrics_path
        if self._last is not None:
            for line in _sample_lines(self._last.samples):
                is_short = len(line) <= TERMINAL_WIDTH
                log.info("%s", line if is_short else f"{line[: TERMINAL_WIDTH - 1]}…")
        best = None
        val_nll = []
        train_nll = []
        for record in read_metrics(path):
            point = (int(number_in(record, "step", path=path)), number_in(record, "nll", path=path))
            if record["kind"] == "step":
                train_nll.append(point)
            else:
                val_nll.append(point)
                if record["is_best"]:
                    best = record
        if best is None:
            return
        step = number_in(best, "step", path=path)
        bleu = number_in(best, "bleu", path=path)
        nll = number_in(best, "nll", path=path)
        _log_facts(
            best=f"step {step:,.0f} of {self._trainer.total_steps:,}: "
            f"BLEU {bleu:.2f} on val, nll {nll:.3f}",
            BLEU=str(best["bleu_signature"]),
        )
        if warning := warning_of_risen_loss(val_nll, train_nll):
            log.warning("%s", warning)

    def write_status(self, state: str, checkpoint: CheckpointState, *, best_by: str) -> None:
        """Write status.json: where training stands; `train --json` prints the same in the end."""
        write_json(
            self._run.folder / STATUS,
            {
                "state": state,
                "step": self._trainer.step,
                "total_steps": self._trainer.total_steps,
                "epoch": self._trainer.epoch_of_last_update,
                "best_step": checkpoint.best_step,
                "best_score": checkpoint.best_score,
                "best_by": best_by,
                "elapsed_s": round(self._elapsed_s(), 1),
            },
        )

    # Updates

    def on_update(self, report: StepReport, *, limit_left_s: float = math.inf) -> None:
        """Count an update. After enough of them, say how long the others will take.

        `limit_left_s` is how long the time limit lets training go on.
        """
        had_estimate = self._meter.has_estimate
        self._meter.add(report)
        self._bar.update()
        left_s = self._left_s()
        if left_s and not had_estimate:
            end = "the end"
            if left_s > limit_left_s:
                left_s = max(0.0, limit_left_s)
                end = "the time limit"
            elif not self._validation_s:
                end = "the end, without validations"
            _log_facts(expected=f"{format_duration(left_s)} to {end}")

    def log_step(self) -> None:
        """Report the updates since the last log line, unless all were skipped."""
        reading = self._meter.read()
        if reading is None:
            return
        elapsed = self._elapsed_s()
        record = {"kind": "step", **asdict(reading), "elapsed_s": elapsed}
        append_metrics(self._run.metrics_path, record)
        if self._tracker is not None:
            curves = {f"train/{name}": getattr(reading, name) for name in TRACKED}
            self._tracker.log(curves, step=reading.step)
        log.log(self._step_level, "%s  elapsed %.0f s", reading, elapsed)
        self._bar.set_postfix_str(
            f"loss {reading.loss:.3f} {reading.tgt_tokens_per_s:.0f} tok/s", refresh=False
        )
        if elapsed > LOAD_AFTER_S and not self._has_warned_of_load and is_overloaded():
            self._has_warned_of_load = True
            advice = ""
            if (threads := torch.get_num_threads()) > 1:
                advice = f"; fewer threads may be faster: --threads {threads // 2}"
            log.warning(
                "more programs want to compute than this machine has cores, which makes training "
                "several times slower%s",
                advice,
            )

    def log_validation(self, validation: Validation, *, is_best: bool, validation_s: float) -> None:
        """Report a validation that took `validation_s` seconds."""
        elapsed = self._elapsed_s()
        bleu = validation.bleu
        self._validation_s = validation_s
        self._last = validation
        record = {
            "kind": "validation",
            "step": validation.step,
            "nll": validation.nll,
            "bleu": bleu.score,
            "bleu_signature": bleu.signature,
            "is_best": is_best,
            "elapsed_s": elapsed,
            "validation_s": validation_s,
        }
        append_metrics(self._run.metrics_path, record)
        if self._tracker is not None:  # a score never travels without its signature
            curves = {"val/nll": validation.nll, f"val/BLEU ({bleu.signature})": bleu.score}
            self._tracker.log(curves, step=validation.step)
        log.debug("validation at step %d  nll %.4f  %s", validation.step, validation.nll, bleu)
        if not self._has_header:
            self._has_header = True
            head = "".join(f"{name:>{width}}" for name, width in COLUMNS.items())
            log.info("%s  best", head)
        reading = self._meter.read(since_validation=True)
        row = _row(validation, reading, elapsed_s=elapsed, left_s=self._left_s())
        log.info("%s", f"{row}  *" if is_best else row)
        for line in _sample_lines(validation.samples):
            log.debug("%s", line)

    def _left_s(self) -> float | None:
        """Seconds to the end, with validations once one was timed; None before that is known."""
        step = self._trainer.step
        total = self._trainer.total_steps
        if not self._meter.has_estimate and step < total:
            return None
        due: Sequence[int] = self._trainer.epoch_ends
        if every := self._run.config.training.validate_every:
            due = range(every, total + 1, every)
        num_validations = len(due) - bisect_right(due, step)
        if total not in due and step < total:
            num_validations += 1
        training_s = (total - step) * self._meter.seconds_per_update
        return training_s + num_validations * self._validation_s


def _row(
    validation: Validation, reading: Reading | None, *, elapsed_s: float, left_s: float | None
) -> str:
    """A line of the table of validations; `reading` is None before the first update."""
    cells = {
        "epoch": "0",
        "step": str(validation.step),
        "train loss": "-",
        "val nll": f"{validation.nll:.3f}",
        "BLEU": f"{validation.bleu.score:.2f}",
        "lr": "-",
        "tok/s": "-",
        "elapsed": _clock(elapsed_s),
        "left": "-" if left_s is None else _clock(left_s),
    }
    if reading is not None:
        cells["epoch"] = str(reading.epoch)
        cells["train loss"] = f"{reading.loss:.3f}"
        cells["lr"] = f"{reading.lr:.1e}"
        cells["tok/s"] = f"{reading.tgt_tokens_per_s:.0f}"
    return "".join(f"{cells[name]:>{width}}" for name, width in COLUMNS.items())


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _sample_lines(samples: Sequence[Sample]) -> list[str]:
    """A line for each source, translation and reference."""
    lines = []
    for sample in samples:
        for label, text in asdict(sample).items():
            lines.append(f"  {label:<11}  {visible(text)}".rstrip())
    return lines


def _log_facts(**facts: str) -> None:
    for name, fact in facts.items():
        log.info("%-10s  %s", name, fact)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
