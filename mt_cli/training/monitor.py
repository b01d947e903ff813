"""What is told while a model is trained: to people, to train.log, to metrics.jsonl and to a
tracker.

Nothing follows from it for the training.
"""

import logging
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.config.schema import Config
from mt_cli.evaluation.scoring import Score
from mt_cli.machine.device import Runtime, describe_processor
from mt_cli.machine.limits import is_overloaded
from mt_cli.machine.terminal import in_words, progress_shown, visible
from mt_cli.runs.run import Run, number_in
from mt_cli.training.live import open_screen
from mt_cli.training.precision import copy_into
from mt_cli.training.track import Tracker
from mt_cli.training.trainer import StepReport, Trainer

log = logging.getLogger(__name__)

COLUMNS = 80
"""Of the narrowest terminal that people use."""
WIDTHS = {
    "epoch": 5, "step": 8, "train loss": 11, "val nll": 8, "BLEU": 7, "lr": 8, "tok/s": 8, "elapsed": 9,
    "left": 9,
}  # fmt: skip
"""Columns of the table of validations, one space before each included; they and `best` are 79."""
HEAD = "".join(f"{name:>{width}}" for name, width in WIDTHS.items()) + "  best"
Sample = tuple[str, str, str]
"""A source, its translation and its reference."""
ENOUGH_S = 45.0
"""Seconds of training after which the mean load of a minute says something."""
CURE_OF_OVERFITTING = "raise model.dropout, train on more pairs (data.more), or for fewer epochs (training.max_epochs)"
OVERFITTED = 0.1
"""Nats a token that the loss on val has risen again where the model is said to overfit."""


@dataclass(frozen=True)
class Validation:
    """What the validation split says of the model after `step` updates."""

    step: int
    nll: float
    """Negative log-likelihood per target token, in nats."""
    bleu: Score
    hyps: list[str]
    """The translation of each source."""
    samples: list[Sample]
    """A few sources with their translations and references."""


class Monitor:
    """Tells how training goes: on a terminal in a screen that stays, elsewhere line by line."""

    def __init__(self, run: Run, trainer: Trainer, *, elapsed_s: Callable[[], float]) -> None:
        """`elapsed_s` gives the seconds of training so far, earlier sessions included."""
        self.meter = Meter()
        self._run, self._trainer = run, trainer
        self._elapsed_s = elapsed_s
        self._tracker: Tracker | None = None
        self._has_header = False
        self._last: Validation | None = None
        self._pace = ""
        self._is_overload_told = False
        self._screen = open_screen(total_steps=trainer.total_steps, head=HEAD)
        # With a screen, these lines go to train.log only.
        self._level = logging.INFO if self._screen is None else logging.DEBUG
        timed = [each for each in run.metrics() if "validation_s" in each]
        self._validation_s = (
            number_in(timed[-1], "validation_s", path=run.metrics_path) if timed else 0.0
        )

    def tell_opening(
        self,
        config_path: Path,
        runtime: Runtime,
        *,
        num_processes: int,
        num_train: int,
        num_val: int,
        bleu_signature: str,
    ) -> None:
        """Say what is about to be trained, on what, and how much of it there is."""
        trainer, training = self._trainer, self._run.config.training
        step, total, ends = trainer.progress.step, trainer.total_steps, trainer.epoch_ends
        device = runtime.device
        is_gpu = device.type == "cuda"
        name = torch.cuda.get_device_name(device) if is_gpu else describe_processor()
        decoding = self._run.config.decoding.precision
        also = "" if runtime.precision == decoding else f", validation in {decoding}"
        each = "" if num_processes == 1 else f" in each of {num_processes} processes"
        every = (
            f"every {training.validate_every:,}" if training.validate_every else "after each epoch"
        )
        summed = "" if training.accumulation == 1 else f", {training.accumulation} to an update"
        self._tell_facts(
            run=f"{self._run.folder}{f', resumed after update {step:,}' if step else ''}",
            config=str(config_path),
            device=f"{device}: {name}",
            precision=f"{runtime.precision}{also}",
            threads=f"{torch.get_num_threads()}{each}",
            pairs=f"{num_train:,} to train on, {num_val:,} to validate on",
            parameters=f"{sum(parameter.numel() for parameter in trainer.model.parameters()):,}",
            updates=(
                f"{total:,}, {ends[0]:,} in an epoch; validation {every}"
                if ends
                else f"{total:,}, less than an epoch"
            )
            + ("; CUDA graphs" if trainer.uses_graphs else ""),
            batches=f"{training.tokens_per_batch:,} tokens a side at most{summed}, "
            f"in {len(trainer.shapes)} shape{'' if len(trainer.shapes) == 1 else 's'}",
            BLEU=bleu_signature,
        )

    @contextmanager
    def watching(self, tracker: Tracker | None) -> Iterator[None]:
        """Show how far training has come, where stderr is a terminal, for as long as the block
        lasts.

        A `tracker` gets what is measured meanwhile.
        """
        self._tracker = tracker
        with nullcontext() if self._screen is None else self._screen.shown():
            yield

    @contextmanager
    def validating(self, num_lines: int) -> Iterator[Callable[[int], None]]:
        """Show how far a validation has come; call what is yielded with a count of lines."""
        if self._screen is None:
            with progress_shown("validating", unit="lines", total=num_lines) as update:
                yield update
            return
        done = 0

        def draw(count: int) -> None:
            nonlocal done
            done += count
            self._draw(
                f"validating  {done:,} of {num_lines:,} lines", at_most_now_and_then=done > 0
            )

        draw(0)
        yield draw

    def count(self, report: StepReport, *, limit_left_s: float = math.inf) -> None:
        """Note that an update has ended. After enough of them, say when the last one will have.

        `limit_left_s` is what a time limit leaves.
        """
        is_time = self.meter.updates + 1 == UPDATES_FOR_AN_ESTIMATE
        if is_time:
            float(report.loss)  # waits for the device, once
        self.meter.add(report)
        self._draw(at_most_now_and_then=True)
        if is_time and (left_s := self._left_s()):
            end = "the end" if left_s <= limit_left_s else "the time limit"
            if end == "the end" and not self._validation_s:
                end = "the end, without validations"
            self._tell_facts(expected=f"{in_words(max(0.0, min(left_s, limit_left_s)))} to {end}")

    def tell_step(self) -> None:
        """Note what was measured of the updates since the last time, if any of them counts."""
        reading = self.meter.read()
        if reading is None:
            return
        elapsed = self._elapsed_s()
        self._run.append_metrics({"kind": "step", **asdict(reading), "elapsed_s": elapsed})
        if self._tracker is not None:
            names = ("loss", "nll", "lr", "grad_norm", "tgt_tokens_per_s")
            self._tracker.log(
                {f"train/{name}": getattr(reading, name) for name in names}, step=reading.step
            )
        log.log(self._level, "%s  elapsed %.0f s", reading, elapsed)
        self._pace = f"loss {reading.loss:.3f}  {reading.tgt_tokens_per_s:,.0f} tok/s"
        if not self._is_overload_told and elapsed > ENOUGH_S and is_overloaded():
            self._is_overload_told = True
            log.warning(
                "more programs want to compute than this machine has cores, which makes training "
                "several times slower; fewer threads may be faster: --threads %d",
                max(1, torch.get_num_threads() // 2),
            )

    def tell_validation(
        self, validation: Validation, *, is_best: bool, validation_s: float
    ) -> None:
        """Note what a validation has found, in `validation_s` seconds."""
        elapsed, bleu = self._elapsed_s(), validation.bleu
        reading = self.meter.read(since_validation=True)
        self._validation_s, self._last = validation_s, validation
        self._run.append_metrics(
            {
                "kind": "validation",
                "step": validation.step,
                "nll": validation.nll,
                "bleu": bleu.score,
                "bleu_signature": bleu.signature,
                "is_best": is_best,
                "elapsed_s": elapsed,
                "validation_s": validation_s,
            }
        )
        if self._tracker is not None:  # a score never travels without its signature
            found = {"val/nll": validation.nll, f"val/BLEU ({bleu.signature})": bleu.score}
            self._tracker.log(found, step=validation.step)
        log.debug("validation at step %d  nll %.4f  %s", validation.step, validation.nll, bleu)
        if not self._has_header:
            self._has_header = True
            log.log(self._level, "%s", HEAD)
        row = _row(validation, reading, elapsed, self._left_s(), is_best)
        log.log(self._level, "%s", row)
        for line in _sample_lines(validation.samples):
            log.debug("%s", line)
        if self._screen is not None:
            self._screen.rows.append((row, is_best))
            self._screen.samples = _sample_lines(validation.samples)
            self._draw()

    def _draw(self, doing: str | None = None, *, at_most_now_and_then: bool = False) -> None:
        if self._screen is None:
            return
        step, total, left_s = self._trainer.progress.step, self._trainer.total_steps, self._left_s()
        left = "" if left_s is None else f"  {in_words(left_s)} left"
        self._screen.step = step
        self._screen.doing = doing or f"step {step:,} of {total:,}  {self._pace}{left}"
        self._screen.draw(at_most_now_and_then=at_most_now_and_then)

    def tell_end(self) -> None:
        """Say what was won, and whether the model has overfitted."""
        if self._last is not None and self._screen is None:
            for line in _sample_lines(self._last.samples):
                log.info("%s", line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…")
        validations = [each for each in self._run.metrics() if each["kind"] == "validation"]
        best = [each for each in validations if each["is_best"]]
        if not best:
            return
        path, total = self._run.metrics_path, self._trainer.total_steps
        step, bleu, nll = (number_in(best[-1], key, path=path) for key in ("step", "bleu", "nll"))
        signature = best[-1]["bleu_signature"]
        _log_facts(
            logging.INFO,
            best=f"step {step:,.0f} of {total:,}: BLEU {bleu:.2f} on val, nll {nll:.3f}",
            BLEU=f"{signature}",
        )
        nlls = [number_in(each, "nll", path=path) for each in validations]
        if nlls[-1] > min(nlls) + OVERFITTED:
            lowest = number_in(validations[nlls.index(min(nlls))], "step", path=path)
            symptom = "overfits"
            cure = CURE_OF_OVERFITTING
            if self._train_loss_rose_after(lowest):
                symptom = "got worse"
                cure = "its loss in training rose too: lower training.peak_lr"
            log.warning(
                "the model %s: its loss on val has risen from %.3f to %.3f; %s",
                symptom, min(nlls), nlls[-1], cure,
            )  # fmt: skip

    def _train_loss_rose_after(self, step: float) -> bool:
        """Whether the loss in training is now higher than it was at update `step`."""
        path = self._run.metrics_path
        losses = [
            (number_in(each, "step", path=path), number_in(each, "nll", path=path))
            for each in self._run.metrics()
            if each["kind"] == "step"
        ]
        before = [loss for at, loss in losses if at <= step]
        return bool(before) and losses[-1][1] > before[-1] + OVERFITTED

    def _tell_facts(self, **facts: str) -> None:
        _log_facts(self._level, **facts)
        if self._screen is not None:
            self._screen.facts |= facts

    def _left_s(self) -> float | None:
        """Seconds to the end, with validations once one has been timed; None before it can be told."""
        step, total, ends = (
            self._trainer.progress.step,
            self._trainer.total_steps,
            self._trainer.epoch_ends,
        )
        if self.meter.updates < UPDATES_FOR_AN_ESTIMATE and step < total:
            return None
        every = self._run.config.training.validate_every
        due = range(every, total + 1, every) if every else ends
        validations_left = len(due) - bisect_right(due, step) + (total not in due and step < total)
        return (total - step) * self.meter.seconds_an_update + validations_left * self._validation_s


def _log_facts(level: int, **facts: str) -> None:
    for name, fact in facts.items():
        log.log(level, "%-10s  %s", name, fact)


def _sample_lines(samples: Sequence[Sample]) -> list[str]:
    """A line for each source, translation and reference."""
    labels = ("source", "translation", "reference")
    return [
        f"  {label:<11}  {visible(text)}".rstrip()
        for sample in samples
        for label, text in zip(labels, sample, strict=True)
    ]


def _row(
    validation: Validation,
    reading: "Reading | None",
    elapsed_s: float,
    left_s: float | None,
    is_best: bool,
) -> str:
    """A line of the table of validations; `reading` is None before the first update."""
    epoch, loss, lr, rate = "0", "-", "-", "-"
    if reading is not None:
        epoch, loss = str(reading.epoch), f"{reading.loss:.3f}"
        lr, rate = f"{reading.lr:.1e}", f"{reading.tgt_tokens_per_s:.0f}"
    times = ["-" if s is None else str(timedelta(seconds=round(s))) for s in (elapsed_s, left_s)]
    nll, bleu = f"{validation.nll:.3f}", f"{validation.bleu.score:.2f}"
    cells = [epoch, str(validation.step), loss, nll, bleu, lr, rate, *times]
    row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS.values(), strict=True))
    return f"{row}  {'*' if is_best else ''}".rstrip()


# What happened between two log lines, and between two validations

MOST_UNREAD = 1000
WARM_UP, UPDATES_FOR_AN_ESTIMATE = 3, 20
"""The first updates of a session are slower and not timed: kernels are chosen and memory is taken."""
RECENT = 200
"""Updates whose speed tells how long the others will take."""


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
            f"step {self.step}  epoch {self.epoch}  loss {self.loss:.4f}  nll {self.nll:.4f}  lr "
            f"{self.lr:.2e}  grad {self.grad_norm:.2f}  tok/s {self.tgt_tokens_per_s:.0f}{skipped}"
        )


class Meter:
    """Gathers step reports; its clock runs from `resume` to `pause`: in training steps alone.

    Reads their tensors only when asked, all at once: that waits for the device.
    """

    def __init__(self) -> None:
        # A row since the last log line and one since the last validation: loss and nll of the
        # tokens, tokens, skipped updates, (2, 4). Their seconds are (2,).
        self._sums = torch.zeros(2, 4, dtype=torch.float64)
        self._seconds = torch.zeros(2, dtype=torch.float64)
        # (3,): norm of the last gradient that counted, skips in a row, all skips before those since
        # the log
        self._last = torch.zeros(3, dtype=torch.float64)
        self._report: StepReport | None = None
        self._unread: list[StepReport] = []
        self._counted_to: float | None = None
        self.updates = 0
        """Of this session."""
        self._session_s = 0.0
        self._ends = deque[float](maxlen=RECENT + 1)
        """Seconds of this session after each of its latest updates, without the first ones."""

    @property
    def seconds_an_update(self) -> float:
        """Of the latest updates, validations not included."""
        return (self._ends[-1] - self._ends[0]) / max(1, len(self._ends) - 1) if self._ends else 0.0

    def add(self, report: StepReport) -> None:
        """Count one update; waits for nothing, unless very many are unread."""
        self._report = report
        self._unread.append(report)
        if len(self._unread) == MOST_UNREAD:
            self._fetch()
        self.updates += 1
        if self.updates >= WARM_UP:
            self._count_seconds()
            self._ends.append(self._session_s)

    def pause(self) -> None:
        """Stop the clock, for a validation say."""
        self._count_seconds()
        self._counted_to = None

    def resume(self) -> None:
        """Let the clock run on."""
        self._counted_to = time.perf_counter()

    def skips(self) -> tuple[int, int]:
        """Updates that were skipped because they were not finite: since the log line, and now in a
        row.
        """
        self._fetch()
        return int(self._sums[0, 3]), int(self._last[1])

    def read(self, *, since_validation: bool = False) -> Reading | None:
        """Means over the reports since the last reading of the kind, weighted by tokens.

        None if none of them counts.
        """
        self._fetch()
        row = int(since_validation)
        report, (loss, nll, tokens, skipped) = self._report, self._sums[row].tolist()
        if report is None or not tokens:
            return None
        self._count_seconds()
        rate = tokens / float(self._seconds[row])
        self._sums[row], self._seconds[row] = 0.0, 0.0
        norm, _, before = self._last.tolist()
        if not since_validation:
            self._last[2] += skipped
        means = (loss / tokens, nll / tokens, report.lr, norm, rate)
        return Reading(report.step, report.epoch, *means, skipped=int(before + skipped))

    def tensors(self) -> dict[str, Tensor]:
        """All that has been added up and not yet been told, by name; a resumed training logs on
        from it.
        """
        self._fetch()
        self._count_seconds()
        return {"meter:sums": self._sums, "meter:seconds": self._seconds, "meter:last": self._last}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `tensors()` returned.

        Raises:
            KeyError: a tensor is missing.
            ValueError: one has another shape.
        """
        copy_into(self.tensors(), tensors)

    def _fetch(self) -> None:
        """Add up what the unread reports hold."""
        if not self._unread:
            return
        measured = [each for r in self._unread for each in (r.loss, r.nll, r.grad_norm, r.skipped)]
        rows = torch.stack(measured).view(-1, 4).tolist()  # waits, once
        for report, (loss, nll, norm, skipped) in zip(self._unread, rows, strict=True):
            if skipped:
                self._sums[:, 3] += 1
                self._last[1] += 1
            else:
                self._sums += (
                    torch.tensor([loss, nll, 1.0, 0.0], dtype=torch.float64) * report.tgt_tokens
                )
                self._last[0], self._last[1] = norm, 0
        self._unread.clear()

    def _count_seconds(self) -> None:
        """Add what the clock has run on, if it runs."""
        if self._counted_to is not None:
            now = time.perf_counter()
            self._seconds += now - self._counted_to
            self._session_s += now - self._counted_to
            self._counted_to = now


# Warnings: what will probably not work, and what has not

FEW_UPDATES = 300
"""Fewer are seldom enough, even for a few hundred pairs."""
ENOUGH_UPDATES = 1000
"""What is proposed in their place."""
LEAST_SHARE = 2048
"""Tokens of a batch that each of several processes needs."""
FEWEST_TOKENS_AN_ENTRY = 10
"""An entry of the vocabulary that occurs less often stays close to its random start."""
BYTES = 256
"""Entries of a subword vocabulary that are single bytes, which most text never needs."""
POOR_BLEU = 1.0
ALIKE = 0.1
"""Translations are nearly all alike if this share of them differs, of sources that differ."""
FEWEST_TO_COMPARE = 10


def before_training(
    config: Config,
    *,
    num_pairs: int,
    num_tokens: int,
    vocab_size: int,
    total_steps: int,
    num_processes: int = 1,
) -> Iterator[str]:
    """What will probably keep a training of `total_steps` updates from working well, a sentence
    each.

    Tokens and vocabulary entries are those of both sides.
    """
    training, pairs = config.training, f"{num_pairs:,} pairs"
    steps_per_epoch = max(1, round(total_steps / training.max_epochs))
    if (training.max_steps or math.inf) <= total_steps or training.init_from is not None:
        pass  # a short training was asked for, or is enough
    elif total_steps < FEW_UPDATES:
        tokens = max(256, min(training.tokens_per_batch, num_tokens // 2 // 15 // 64 * 64))
        per_epoch = max(1, steps_per_epoch * training.tokens_per_batch // tokens)
        epochs = max(training.max_epochs, -(-ENOUGH_UPDATES // per_epoch))
        yield (
            f"training makes only {total_steps} updates, {steps_per_epoch} an epoch, from {pairs}; "
            f"most models need a thousand or more: set training.tokens_per_batch = {tokens} and "
            f"training.max_epochs = {epochs}, or let mt-cli config new choose"
        )
    elif steps_per_epoch == 1:
        update, cure = "a batch", "smaller batches learn"
        if training.accumulation > 1:
            update, cure = (
                f"an update of {training.accumulation} batches",
                "a smaller accumulation learns",
            )
        yield (
            f"{update} of training.tokens_per_batch = {training.tokens_per_batch} holds the whole "
            f"corpus of {pairs}; {cure} in fewer epochs"
        )
    share = training.tokens_per_batch // num_processes
    if num_processes > 1 and share < LEAST_SHARE:
        yield (
            f"each of {num_processes} processes gets {share:,} tokens of a batch, too few to keep "
            f"it busy; set training.tokens_per_batch = {num_processes * LEAST_SHARE}"
        )
    warmup_steps = training.num_warmup_steps(total_steps)
    if warmup_steps >= total_steps:
        yield (
            f"the warm-up of {warmup_steps} updates is not over when training ends after "
            f"{total_steps}: the learning rate never gets to training.peak_lr; set "
            "training.warmup_steps = 0.1, a tenth of them"
        )
    is_words = config.tokenizer.kind == "spacy"
    spare = 0 if is_words else BYTES * (1 if config.tokenizer.joint else 2)
    learned = max(1, vocab_size - spare)
    if num_tokens < learned * FEWEST_TOKENS_AN_ENTRY and config.tokenizer.from_run is None:
        yield (
            f"the vocabulary of {vocab_size:,} entries is large for {num_pairs:,} training pairs: "
            f"each entry occurs {num_tokens / learned:.0f} times on average; "
            f"{'raise tokenizer.min_freq' if is_words else 'lower tokenizer.vocab_size'}, then "
            "prepare again"
        )


def after_training(bleu: float, *, hyps: Sequence[str], sources: Sequence[str]) -> str | None:
    """What the translations of the validation split say of a model, if it has failed."""
    num_hyps, num_sources = len(set(hyps)), len(set(sources))
    if num_sources >= FEWEST_TO_COMPARE and num_hyps <= max(1, num_sources * ALIKE):
        found = (
            f"the model does not read its source: {num_sources} different sources got only "
            f"{num_hyps} different translations, {bleu:.2f} BLEU"
        )
    elif bleu < POOR_BLEU:
        found = f"the model has not learnt to translate: {bleu:.2f} BLEU on val"
    else:
        return None
    return (
        f"{found}; look at the loss in train.log; if it was still falling, train longer "
        "(training.max_epochs), if it never fell, check that the two files are aligned line by "
        "line, and try a smaller training.peak_lr; mt-cli config new chooses keys that suit a "
        "corpus"
    )
