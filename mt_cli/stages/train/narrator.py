"""What is told while a model is trained: to people, to the log file, to metrics.jsonl and to TensorBoard.

Decides how a fact is worded and who hears it; nothing follows from it for the training.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import Never

import torch
from tqdm import tqdm

from mt_cli.artefacts.run import Run
from mt_cli.machine.audience import FOR_FILE, FOR_PEOPLE
from mt_cli.machine.hardware import describe_memory_use
from mt_cli.machine.progress import progress_bar
from mt_cli.stages.train.meter import Reading, Stretch
from mt_cli.stages.train.opening import Opening, in_columns
from mt_cli.stages.train.pace import Pace
from mt_cli.stages.train.samples import Sample
from mt_cli.stages.train.table import COLUMNS, HEADER, Row, in_words
from mt_cli.stages.train.tensorboard import EventFiles
from mt_cli.stages.train.validation import Validation
from mt_cli.training.trainer import StepReport, Trainer

log = logging.getLogger(__name__)


class Narrator:
    """Tells how training goes, on a terminal with a progress bar."""

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        pace: Pace,
        *,
        device: torch.device,
        elapsed_s: Callable[[], float],
        events: EventFiles | None = None,
    ) -> None:
        """`elapsed_s` gives the seconds of training so far, earlier sessions included."""
        self._run, self._trainer, self._pace = run, trainer, pace
        self._device, self._elapsed_s = device, elapsed_s
        self._events = events
        self._bar: tqdm[Never] | None = None
        self._has_header = False

    def tell_opening(self, opening: Opening) -> None:
        """Say what is about to be trained."""
        for line in opening.lines():
            log.info("%s", line)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Show how far training has come, where stderr is a terminal, for as long as the block lasts."""
        total, step = self._trainer.total_steps, self._trainer.progress.step
        with (
            progress_bar(unit="step", total=total, initial=step) as self._bar,
            self._events or nullcontext(),
        ):
            yield

    def count(self, report: StepReport, *, limit_left_s: float = math.inf) -> None:
        """Note that an update has ended. After enough of them, say when the last one will have.

        `limit_left_s` is what a time limit leaves.
        """
        self._pace.count(report)
        if self._bar is not None:
            self._bar.update()
        if self._pace.is_new:
            float(report.loss)  # waits for the device, once
            left_s = self._pace.left_s()
            if left_s:
                self._tell_estimate(left_s, limit_left_s)

    def validating(self) -> AbstractContextManager[None]:
        """Time a validation, with the checkpoint that follows from it."""
        return self._pace.validating()

    def tell_step(self, reading: Reading) -> None:
        """Note what was measured of the updates since the last reading."""
        elapsed = self._elapsed_s()
        self._run.append_metrics({"kind": "step", **asdict(reading), "elapsed_s": elapsed})
        if self._events is not None:
            self._events.add_step(reading)
        # A terminal has the bar; a file or a pipe gets lines.
        audience = FOR_FILE if self._is_watched else {}
        log.info("%s  elapsed %.0f s", reading, elapsed, extra=audience)
        if self._bar is not None:
            shown = {"loss": f"{reading.loss:.3f}", "tok/s": f"{reading.tgt_tokens_per_s:.0f}"}
            self._bar.set_postfix(shown, refresh=False)

    def tell_validation(
        self, validation: Validation, stretch: Stretch | None, *, is_best: bool, validation_s: float
    ) -> None:
        """Note what a validation has found, in `validation_s` seconds, after a `stretch` of training."""
        elapsed = self._elapsed_s()
        extra = {"is_best": is_best, "elapsed_s": elapsed, "validation_s": validation_s}
        self._run.append_metrics({"kind": "validation", **validation.as_json(), **extra})
        if self._events is not None:
            self._events.add_validation(validation)
        log.info(
            "valid step %d  nll %.4f  %s  elapsed %.0f s%s",
            validation.step, validation.nll, validation.bleu, elapsed, "  (best so far)" if is_best else "",
            extra=FOR_FILE,
        )  # fmt: skip
        self._tell_row(
            Row(
                step=validation.step,
                stretch=stretch,
                val_nll=validation.nll,
                bleu=validation.bleu.score,
                elapsed_s=elapsed,
                left_s=self._pace.left_s(),
                is_best=is_best,
            )
        )
        self._tell_samples(validation.samples)

    @property
    def _is_watched(self) -> bool:
        """Whether stderr is a terminal that shows the bar."""
        return self._bar is not None and not self._bar.disable

    def _tell_estimate(self, left_s: float, limit_left_s: float) -> None:
        end = "the end, validations included" if left_s <= limit_left_s else "the time limit"
        left = in_words(max(0.0, min(left_s, limit_left_s)))
        for line in in_columns({"expected": f"{left} to {end}", "memory": describe_memory_use(self._device)}):
            log.info("%s", line)

    def _tell_row(self, row: Row) -> None:
        if not self._has_header:
            self._has_header = True
            log.info("%s", HEADER, extra=FOR_PEOPLE)
        log.info("%s", row, extra=FOR_PEOPLE)

    def _tell_samples(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            for whole, shown in zip(sample.lines(), sample.lines(width=COLUMNS), strict=True):
                if self._is_watched:
                    log.info("%s", shown, extra=FOR_PEOPLE)
                log.info("%s", whole, extra=FOR_FILE if self._is_watched else {})
