"""All reports about training: to the terminal, train.log, metrics.jsonl, status.json and a tracker.

Reporting only; it also counts the updates that were skipped.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.machine.device import Runtime, describe_processor
from mt_cli.machine.files import write_json
from mt_cli.machine.terminal import progress_bar, visible
from mt_cli.runs.checkpoint import CheckpointState
from mt_cli.runs.reports import (
    Status,
    StepRecord,
    TrainingState,
    ValidationRecord,
    append_metrics,
    read_metrics,
)
from mt_cli.runs.run import STATUS, Run
from mt_cli.training.advice import warning_after, warning_of_risen_loss
from mt_cli.training.trackers import Tracker
from mt_cli.training.trainer import StepReport, Trainer
from mt_cli.training.validator import Validation, Validator

log = logging.getLogger(__name__)

MAX_UNREAD = 1000
TERMINAL_WIDTH = 80
"""Width of the narrowest terminal that people use."""
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
"""Column widths of the validation table, each with one space before; 79 in total with `best`."""
TRACKED = ("loss", "nll", "lr", "grad_norm", "tgt_tokens_per_s")


class Meter:
    """Means over several updates, weighted by tokens; skipped updates are only counted.

    The tensors of reports are read only on demand, all at once, because that waits for the device.
    """

    def __init__(self, *, skipped_in_a_row: int = 0) -> None:
        self.began_at = time.perf_counter()
        self.skipped = 0
        self.skipped_in_a_row = skipped_in_a_row
        self._unread: list[StepReport] = []
        self._latest: StepReport | None = None
        self._grad_norm = 0.0
        self._tgt_tokens = 0
        self._loss = 0.0
        self._nll = 0.0

    def add(self, report: StepReport) -> None:
        """Count one update."""
        self._unread.append(report)
        if len(self._unread) == MAX_UNREAD:
            self.read()

    def read(self) -> StepRecord | None:
        """The record of these updates; None if all were skipped."""
        if self._unread:
            self._latest = self._unread[-1]
            measured: list[Tensor] = []
            for report in self._unread:
                measured += [report.loss, report.nll, report.grad_norm, report.skipped]
            rows = torch.stack(measured).view(-1, 4).tolist()  # waits once
            for report, (loss, nll, grad_norm, skipped) in zip(self._unread, rows, strict=True):
                if skipped:
                    self.skipped += 1
                    self.skipped_in_a_row += 1
                else:
                    self.skipped_in_a_row = 0
                    self._grad_norm = grad_norm
                    self._tgt_tokens += report.tgt_tokens
                    self._loss += loss * report.tgt_tokens
                    self._nll += nll * report.tgt_tokens
            self._unread.clear()
        if self._latest is None or not self._tgt_tokens:
            return None
        return StepRecord(
            step=self._latest.step,
            epoch=self._latest.epoch,
            loss=self._loss / self._tgt_tokens,
            nll=self._nll / self._tgt_tokens,
            lr=self._latest.lr,
            grad_norm=self._grad_norm,
            tgt_tokens_per_s=self._tgt_tokens / (time.perf_counter() - self.began_at),
            skipped=self.skipped,
        )


class Monitor:
    """Reports the progress of training."""

    def __init__(
        self, run: Run, trainer: Trainer, validator: Validator, *, elapsed_s: Callable[[], float]
    ) -> None:
        """`elapsed_s` gives the seconds of training so far, earlier sessions included."""
        self._run = run
        self._trainer = trainer
        self._validator = validator
        self._elapsed_s = elapsed_s
        self._tracker: Tracker | None = None
        self._bar = progress_bar(
            "training", unit="updates", total=trainer.total_steps, initial=trainer.step
        )
        # With a progress bar, the step lines go to the debug log.
        self._step_level = logging.INFO if self._bar.disable else logging.DEBUG
        self._began = (trainer.step, elapsed_s())
        self._has_header = False
        self._last: Validation | None = None
        self._since_log = Meter()
        self._since_validation = Meter()

    # Begin and end

    def log_start(self, config_path: Path, runtime: Runtime, *, num_processes: int) -> None:
        """Log what will be trained, on which device, and how many updates it takes."""
        trainer = self._trainer
        training = self._run.config.training
        device = describe_processor()
        if runtime.device.type == "cuda":
            device = torch.cuda.get_device_name(runtime.device)
        threads = f"{torch.get_num_threads()}"
        if num_processes > 1:
            threads += f" in each of {num_processes} processes"
        every = "after each epoch"
        if training.validate_every:
            every = f"every {training.validate_every:,}"
        resumed = f", resumed after update {trainer.step:,}" if trainer.step else ""
        parameters = sum(each.numel() for each in trainer.model.parameters())
        _log_facts(
            run=f"{self._run.folder}{resumed}",
            config=str(config_path),
            device=f"{runtime.device}: {device}",
            precision=f"{runtime.precision}, validation in {self._run.config.decoding.precision}",
            threads=threads,
            pairs=f"{trainer.num_pairs:,} for training, {len(self._validator.sources):,} for "
            "validation",
            parameters=f"{parameters:,}",
            updates=f"{trainer.total_steps:,}, {trainer.steps_per_epoch:,} per epoch; "
            f"validation {every}" + ("; CUDA graphs" if trainer.uses_graphs else ""),
            batches=f"at most {training.tokens_per_batch:,} tokens per side, "
            f"{training.accumulation} per update",
            BLEU=self._validator.bleu_signature,
        )

    @contextmanager
    def watching(self, tracker: Tracker | None) -> Iterator[None]:
        """Show a progress bar in the block, if stderr is a terminal; `tracker` gets the curves."""
        self._tracker = tracker
        try:
            yield
        finally:
            self._bar.close()

    def log_end(self, ended: TrainingState) -> None:
        """Log the best checkpoint's scores, and warn about problems."""
        is_smoke_run = self._run.config.training.max_steps is not None
        if self._last is not None:
            for line in self._sample_lines(self._last):
                is_short = len(line) <= TERMINAL_WIDTH
                log.info("%s", line if is_short else f"{line[: TERMINAL_WIDTH - 1]}…")
            if ended != "time_limit" and self._validator.has_bleu and not is_smoke_run:
                bleu = self._last.bleu.score
                _warn(warning_after(bleu, self._last.hyps, self._validator.sources))
        steps, validations = read_metrics(self._run.metrics_path)
        bests = [record for record in validations if record.is_best]
        if not bests:
            return
        best = bests[-1]
        _log_facts(
            best=f"step {best.step:,} of {self._trainer.total_steps:,}: "
            f"BLEU {best.bleu:.2f} on val, nll {best.nll:.3f}",
            BLEU=best.bleu_signature,
        )
        val_nll = [(record.step, record.nll) for record in validations]
        _warn(warning_of_risen_loss(val_nll, [(record.step, record.nll) for record in steps]))

    def write_status(
        self, state: TrainingState, checkpoint: CheckpointState, *, reason: str = ""
    ) -> None:
        """Write the state of training to status.json, which `train --json` also prints at the end.

        `reason` says why training ended early.
        """
        status = Status(
            state=state,
            reason=reason,
            step=self._trainer.step,
            total_steps=self._trainer.total_steps,
            epoch=self._trainer.epoch_of_last_update,
            best_step=checkpoint.best_step,
            best_score=checkpoint.best_score,
            best_by=self._validator.best_by,
            elapsed_s=round(self._elapsed_s(), 1),
        )
        write_json(self._run.folder / STATUS, status.model_dump())

    # Updates

    def start_clock(self) -> None:
        """Start measuring the speed of training."""
        self._since_log = Meter()
        self._since_validation = Meter()

    @contextmanager
    def clock_stopped(self) -> Iterator[None]:
        """Exclude the time of the block, such as a validation, from the speed of training."""
        began_at = time.perf_counter()
        yield
        for meter in (self._since_log, self._since_validation):
            meter.began_at += time.perf_counter() - began_at

    def on_update(self, report: StepReport) -> None:
        """Count an update."""
        self._since_log.add(report)
        self._since_validation.add(report)
        self._bar.update()

    def num_skipped(self) -> tuple[int, int]:
        """Number of skipped updates: since the last log line, and in a row up to now."""
        self._since_log.read()
        return self._since_log.skipped, self._since_log.skipped_in_a_row

    def log_step(self) -> None:
        """Report the updates since the last log line, unless all were skipped."""
        record = self._since_log.read()
        if record is None:
            return
        record = record.model_copy(update={"elapsed_s": self._elapsed_s()})
        self._since_validation.read()
        self._since_log = Meter(skipped_in_a_row=self._since_log.skipped_in_a_row)
        append_metrics(self._run.metrics_path, record)
        if self._tracker is not None:
            curves = {f"train/{name}": float(getattr(record, name)) for name in TRACKED}
            self._tracker(curves, record.step)
        line = (
            f"step {record.step}  epoch {record.epoch}  loss {record.loss:.4f}  "
            f"nll {record.nll:.4f}  lr {record.lr:.2e}  grad {record.grad_norm:.2f}  "
            f"tok/s {record.tgt_tokens_per_s:.0f}"
        )
        if record.skipped:
            line += f"  skipped {record.skipped}"
        log.log(self._step_level, "%s  elapsed %.0f s", line, record.elapsed_s)
        facts = f"loss {record.loss:.3f} {record.tgt_tokens_per_s:.0f} tok/s"
        self._bar.set_postfix_str(facts, refresh=False)

    def log_validation(self, validation: Validation, *, is_best: bool, validation_s: float) -> None:
        """Report a validation that took `validation_s` seconds."""
        self._last = validation
        bleu = validation.bleu
        record = ValidationRecord(
            step=validation.step,
            nll=validation.nll,
            bleu=bleu.score,
            bleu_signature=bleu.signature,
            is_best=is_best,
            elapsed_s=self._elapsed_s(),
            validation_s=validation_s,
        )
        append_metrics(self._run.metrics_path, record)
        if self._tracker is not None:  # a score never travels without its signature
            curves = {"val/nll": validation.nll, f"val/BLEU ({bleu.signature})": bleu.score}
            self._tracker(curves, validation.step)
        log.debug("validation at step %d  nll %.4f  %s", validation.step, validation.nll, bleu)
        if not self._has_header:
            self._has_header = True
            head = "".join(f"{name:>{width}}" for name, width in COLUMNS.items())
            log.info("%s  best", head)
        row = self._row(validation)
        log.info("%s", f"{row}  *" if is_best else row)
        for line in self._sample_lines(validation):
            log.debug("%s", line)

    def _row(self, validation: Validation) -> str:
        """A row of the validation table, with the training loss since the previous row."""
        first_step, first_s = self._began
        elapsed_s = self._elapsed_s()
        steps_left = self._trainer.total_steps - self._trainer.step
        cells = {
            "epoch": "0",
            "step": str(validation.step),
            "val nll": f"{validation.nll:.3f}",
            "BLEU": f"{validation.bleu.score:.2f}",
            "elapsed": _clock(elapsed_s),
        }
        record = self._since_validation.read()
        if record is not None:
            self._since_validation = Meter()
            s_per_step = (elapsed_s - first_s) / max(1, self._trainer.step - first_step)
            cells["epoch"] = str(record.epoch)
            cells["train loss"] = f"{record.loss:.3f}"
            cells["lr"] = f"{record.lr:.1e}"
            cells["tok/s"] = f"{record.tgt_tokens_per_s:.0f}"
            cells["left"] = _clock(steps_left * s_per_step)
        return "".join(f"{cells.get(name, '-'):>{width}}" for name, width in COLUMNS.items())

    def _sample_lines(self, validation: Validation) -> Iterator[str]:
        """Lines with source, translation and reference of a few samples."""
        for i in self._validator.samples:
            yield f"  source       {visible(self._validator.sources[i])}".rstrip()
            yield f"  translation  {visible(validation.hyps[i])}".rstrip()
            yield f"  reference    {visible(self._validator.refs[i])}".rstrip()


def _warn(warning: str | None) -> None:
    if warning is not None:
        log.warning("%s", warning)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _log_facts(**facts: str) -> None:
    for name, fact in facts.items():
        log.info("%-10s  %s", name, fact)
