"""What is told while a model is trained: to people, to train.log, to metrics.jsonl and to TensorBoard.

Nothing follows from it for the training.
"""

import logging
import math
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Never

import torch
from torch import Tensor
from tqdm import tqdm

from mt_cli.config.schema import Config
from mt_cli.errors import ResourceError
from mt_cli.evaluation.scoring import Score, bleu_signature
from mt_cli.machine.device import Runtime, describe_memory_use, describe_processor
from mt_cli.machine.terminal import FOR_FILE, FOR_PEOPLE, in_words, progress_bar, visible
from mt_cli.runs.run import Run, number_in
from mt_cli.training.trainer import StepReport, Trainer

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger(__name__)

COLUMNS = 80
"""Of the narrowest terminal that people use."""
WIDTHS = {
    "epoch": 5, "step": 8, "train loss": 11, "val nll": 8, "BLEU": 7, "lr": 8, "tok/s": 8, "elapsed": 9,
    "left": 9,
}  # fmt: skip
"""Columns of the table of validations, one space before each included; they and `best` are 79."""
REPEATED_WORDS = re.compile(r"(?<!\S)(\S+(?: \S+){0,7}?)(?: \1){3,}(?!\S)")
"""Up to eight words that stand four times in a row, or more often."""
TENSORBOARD = "tensorboard"
"""Folder of its event files, in that of the run."""


@dataclass(frozen=True)
class Validation:
    """What the validation split says of the model after `step` updates."""

    step: int
    nll: float
    """Negative log-likelihood per target token, in nats."""
    bleu: Score
    hyps: list[str]
    """The translation of each source."""
    samples: list[tuple[str, str, str]]
    """A few sources with their translations and references."""


class Monitor:
    """Tells how training goes, with a progress bar on a terminal."""

    def __init__(
        self,
        run: Run,
        config: Config,
        trainer: Trainer,
        *,
        device: torch.device,
        validation_tokens: int,
        elapsed_s: Callable[[], float],
        events: "SummaryWriter | None" = None,
    ) -> None:
        """`elapsed_s` gives the seconds of training so far, earlier sessions included."""
        self.meter = Meter()
        self._run, self._config, self._trainer, self._device = run, config, trainer, device
        self._elapsed_s, self._events = elapsed_s, events
        self._bar: tqdm[Never] | None = None
        self._has_header = False
        every, total = config.training.validate_every, trainer.total_steps
        timed = [each for each in run.metrics() if "validation_s" in each]
        self._pace = Pace(
            total_steps=total,
            validation_steps=range(every, total + 1, every) if every else trainer.epoch_ends,
            validation_tokens=validation_tokens,
            validation_s=number_in(timed[-1], "validation_s", path=run.metrics_path) if timed else None,
        )

    def tell_opening(
        self, config_path: Path, runtime: Runtime, *, num_processes: int, num_train: int, num_val: int
    ) -> None:
        """Say what is about to be trained, on what, and how much of it there is."""
        trainer, training = self._trainer, self._config.training
        step, total, ends = trainer.progress.step, trainer.total_steps, trainer.epoch_ends
        device = runtime.device
        is_gpu = device.type == "cuda"
        name = torch.cuda.get_device_name(device) if is_gpu else describe_processor()
        decoding = self._config.decoding.precision
        also = "" if runtime.precision == decoding else f", validation in {decoding}"
        each = "" if num_processes == 1 else f" in each of {num_processes} processes"
        every = f"every {training.validate_every:,}" if training.validate_every else "after each epoch"
        summed = "" if training.accumulation == 1 else f", {training.accumulation} to an update"
        _log_facts(
            run=f"{self._run.folder}{f', resumed after update {step:,}' if step else ''}",
            config=str(config_path),
            device=f"{device}: {name}",
            precision=f"{runtime.precision}{also}",
            threads=f"{torch.get_num_threads()}{each}",
            pairs=f"{num_train:,} to train on, {num_val:,} to validate on",
            parameters=f"{sum(parameter.numel() for parameter in trainer.model.parameters()):,}",
            updates=f"{total:,}, {ends[0]:,} in an epoch; validation {every}"
            if ends
            else f"{total:,}, less than an epoch",
            batches=f"{training.tokens_per_batch:,} tokens a side at most{summed}, "
            f"in {len(trainer.shapes)} shapes",
            BLEU=bleu_signature(lowercase=self._config.data.lowercase),
        )

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
        self.meter.add(report)
        self._pace.count(report)
        if self._bar is not None:
            self._bar.update()
        if self._pace.is_new:
            float(report.loss)  # waits for the device, once
            if left_s := self._pace.left_s():
                end = "the end, validations included" if left_s <= limit_left_s else "the time limit"
                expected = f"{in_words(max(0.0, min(left_s, limit_left_s)))} to {end}"
                _log_facts(expected=expected, memory=describe_memory_use(self._device))

    def tell_step(self) -> None:
        """Note what was measured of the updates since the last time, if any of them counts."""
        reading = self.meter.read()
        if reading is None:
            return
        elapsed = self._elapsed_s()
        self._run.append_metrics({"kind": "step", **asdict(reading), "elapsed_s": elapsed})
        if self._events is not None:
            for name in ("loss", "nll", "lr", "grad_norm", "tgt_tokens_per_s"):
                self._events.add_scalar(f"train/{name}", getattr(reading, name), reading.step)
        # A terminal has the bar; a file or a pipe gets lines.
        log.info("%s  elapsed %.0f s", reading, elapsed, extra=FOR_FILE if self._is_watched else {})
        if self._bar is not None:
            shown = {"loss": f"{reading.loss:.3f}", "tok/s": f"{reading.tgt_tokens_per_s:.0f}"}
            self._bar.set_postfix(shown, refresh=False)

    @contextmanager
    def validating(self) -> Iterator[None]:
        """Time a validation, with the checkpoint that follows from it; the meter's clock stands still."""
        self.meter.pause()
        with self._pace.validating():
            yield
        self.meter.resume()

    def tell_validation(self, validation: Validation, *, is_best: bool, validation_s: float) -> None:
        """Note what a validation has found, in `validation_s` seconds."""
        elapsed, stretch, bleu = self._elapsed_s(), self.meter.end_stretch(), validation.bleu
        record = {
            "step": validation.step,
            "nll": validation.nll,
            "bleu": bleu.score,
            "bleu_signature": bleu.signature,
        }
        self._run.append_metrics(
            {
                "kind": "validation",
                **record,
                "is_best": is_best,
                "elapsed_s": elapsed,
                "validation_s": validation_s,
            }
        )
        if self._events is not None:
            self._events.add_scalar("val/nll", validation.nll, validation.step)
            # A score never travels without its signature.
            self._events.add_scalar(f"val/BLEU ({bleu.signature})", bleu.score, validation.step)
            self._events.flush()
        best = "  (best so far)" if is_best else ""
        log.info(
            "valid step %d  nll %.4f  %s  elapsed %.0f s%s",
            validation.step, validation.nll, bleu, elapsed, best, extra=FOR_FILE,
        )  # fmt: skip
        if not self._has_header:
            self._has_header = True
            head = "".join(f"{name:>{width}}" for name, width in WIDTHS.items())
            log.info("%s  best", head, extra=FOR_PEOPLE)
        log.info("%s", _row(validation, stretch, elapsed, self._pace.left_s(), is_best), extra=FOR_PEOPLE)
        for sample in validation.samples:
            for label, text in zip(("source", "translation", "reference"), sample, strict=True):
                line = f"  {label:<11}  {_without_repetition(visible(text))}".rstrip()
                if self._is_watched:
                    log.info(
                        "%s", line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…", extra=FOR_PEOPLE
                    )
                log.info("%s", line, extra=FOR_FILE if self._is_watched else {})

    @property
    def _is_watched(self) -> bool:
        """Whether stderr is a terminal that shows the bar."""
        return self._bar is not None and not self._bar.disable


def _log_facts(**facts: str) -> None:
    for name, fact in facts.items():
        log.info("%-10s  %s", name, fact)


def _row(
    validation: Validation, stretch: "Stretch | None", elapsed_s: float, left_s: float | None, is_best: bool
) -> str:
    """A line of the table of validations; `stretch` is None before the first update."""
    cells = [
        "0" if stretch is None else str(stretch.epoch),
        str(validation.step),
        "-" if stretch is None else f"{stretch.loss:.3f}",
        f"{validation.nll:.3f}",
        f"{validation.bleu.score:.2f}",
        "-" if stretch is None else f"{stretch.lr:.1e}",
        "-" if stretch is None else f"{stretch.tgt_tokens_per_s:.0f}",
        clock(elapsed_s),
        "-" if left_s is None else clock(left_s),
    ]
    row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS.values(), strict=True))
    return f"{row}  {'*' if is_best else ''}".rstrip()


def clock(seconds: float) -> str:
    """A duration such as `0:07`, `12:34`, `1:02:03` or, from four days on, `4d 05h`."""
    whole = round(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days >= 4:
        return f"{days}d {hours % 24:02}h"
    if hours:
        return f"{hours}:{minutes % 60:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}"


def _without_repetition(text: str) -> str:
    """`text` with words that come again and again said three times, and then how often they stood there."""

    def counted(match: re.Match[str]) -> str:
        repeats = (len(match[0]) + 1) // (len(match[1]) + 1)
        return f"{' '.join([match[1]] * 3)} … (×{repeats})"

    return REPEATED_WORDS.sub(counted, text)


def event_writer(run_folder: Path, *, after_step: int) -> "SummaryWriter":
    """Writer of TensorBoard's event files, which hides what a kill lost of later updates.

    Raises:
        ResourceError: TensorBoard, an extra, is not installed.
    """
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(run_folder / TENSORBOARD), purge_step=after_step + 1)


def check_tensorboard() -> None:
    """Make sure that TensorBoard can be imported, before anything is made.

    Raises:
        ResourceError: it is not installed.
    """
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ResourceError(
            f"--tensorboard needs the package tensorboard, which cannot be imported ({error}); "
            "run: pip install 'mt_cli[tensorboard]'"
        ) from error


# What happened between two log lines, and between two validations

SINCE_LOG, SINCE_VALIDATION, LAST = "meter:since_log", "meter:since_validation", "meter:last"
"""Names of the tensors that a checkpoint keeps, so that a resumed training logs on without a gap."""


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
    """Gathers step reports; its clock stands still outside of training steps.

    Reads tensors only when asked, since reading waits for the device.
    """

    def __init__(self) -> None:
        self._since_log, self._since_validation = _Sums(), _Sums()
        self._report: StepReport | None = None
        # (3,): norm of the last gradient that counted, skips in a row, all skips before those since the log
        self._last = torch.zeros(3, dtype=torch.float64)
        self._counted_to: float | None = time.perf_counter()

    def add(self, report: StepReport) -> None:
        """Count one update; waits for nothing."""
        row, was_skipped = _row_of(report), report.skipped > 0
        for sums in (self._since_log, self._since_validation):
            sums.totals = sums.totals.to(row.device, non_blocking=True) + row
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
        means = (loss / tokens, nll / tokens, report.lr, norm, rate)
        return Reading(report.step, report.epoch, *means, skipped=int(before + skipped))

    def end_stretch(self) -> Stretch | None:
        """Means over the reports since the last stretch, weighted by tokens; None if none of them counts."""
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
        """Go on from what `tensors()` returned.

        Raises:
            KeyError: a tensor is missing.
        """
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

    def as_tensor(self) -> Tensor:
        """Totals and seconds, (5,)."""
        return torch.cat([self.totals.cpu(), torch.tensor([self.seconds], dtype=torch.float64)])

    @classmethod
    def of(cls, tensor: Tensor) -> "_Sums":
        """What `as_tensor()` returned."""
        sums = cls()
        sums.totals, sums.seconds = tensor[:4], float(tensor[4])
        return sums


def _row_of(report: StepReport) -> Tensor:
    """What one update adds to the sums, (4,): nothing but itself if it was skipped."""
    one = torch.ones_like(report.loss)
    summed = torch.stack([report.loss, report.nll, one]).double() * report.tgt_tokens
    counted = torch.where(report.skipped > 0, 0.0, summed)
    return torch.cat([counted, report.skipped.double().unsqueeze(0)])


# How long training has still to go

WARM_UP = 3
"""First updates of a session, which are slower and not counted: kernels are chosen and memory is taken."""
UPDATES_FOR_AN_ESTIMATE = 20
VALIDATION_COST = 2.0
"""Time of a validation in that of training on its pairs, until one has been timed (measured: 1.2 to 3)."""


class Pace:
    """The seconds that updates and validations take, and what follows for those that are left."""

    def __init__(
        self,
        *,
        total_steps: int,
        validation_steps: Sequence[int],
        validation_tokens: int,
        validation_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`validation_steps` ascend; after the last update comes a validation in any case.

        `validation_tokens` counts the target tokens of the validation split, and `validation_s` is what a
        validation of an earlier session took.
        """
        self._total_steps, self._validation_steps = total_steps, validation_steps
        self._validation_tokens, self._validation_s = validation_tokens, validation_s
        self._clock = clock
        self._step, self._updates, self._tokens = 0, 0, 0
        self._began_at, self._apart_s = clock(), 0.0
        self._validating_since: float | None = None

    def count(self, report: StepReport) -> None:
        """Note that an update has ended."""
        self._step = report.step
        self._updates += 1
        self._tokens += report.tgt_tokens
        if self._updates == WARM_UP:
            self._began_at, self._apart_s, self._tokens = self._clock(), 0.0, 0

    @property
    def is_new(self) -> bool:
        """Whether now is the first time at which an estimate can be relied on."""
        return self._updates == UPDATES_FOR_AN_ESTIMATE

    @contextmanager
    def validating(self) -> Iterator[None]:
        """Time a validation, with the checkpoint that follows from it."""
        self._validating_since = began_at = self._clock()
        yield
        self._validating_since = None
        self._validation_s = self._clock() - began_at
        self._apart_s += self._validation_s

    def left_s(self) -> float | None:
        """Seconds to the end, validations included; None before enough updates to tell.

        On a GPU, wait for the last update first.
        """
        if self._step >= self._total_steps:
            return 0.0
        counted = self._updates - WARM_UP
        if counted < 1:
            return None
        now, since = self._clock(), self._validating_since
        trained_s = (now if since is None else since) - self._began_at - self._apart_s
        validation_s = self._validation_s if since is None else now - since
        if validation_s is None:
            validation_s = VALIDATION_COST * self._validation_tokens * trained_s / self._tokens
        steps = self._validation_steps
        ends_with_one = bool(steps) and steps[-1] == self._total_steps
        validations_left = len(steps) - bisect_right(steps, self._step) + (not ends_with_one)
        return (self._total_steps - self._step) * trained_s / counted + validations_left * validation_s
