"""One session of training, from a start or a resume to the end; `Session.loop` is the loop.

For each update: log, validate, save, stop. With several processes, the first one validates, saves
and decides, and the others follow.
"""

import logging
import math
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, Never

import torch
from torch import Tensor

from mt_cli.config.schema import TRAIN
from mt_cli.data.prepared import Prepared
from mt_cli.errors import DataError, DivergedError, MtCliError, StoppedError
from mt_cli.machine.device import Runtime
from mt_cli.machine.process import StopSignals
from mt_cli.machine.terminal import progress_shown
from mt_cli.runs.checkpoint import (
    CheckpointState,
    checkpoint_name,
    read_state,
    read_training_tensors,
    read_weights,
    save_checkpoint,
)
from mt_cli.runs.reports import TrainingState, read_metrics, truncate_metrics
from mt_cli.runs.run import CHECKPOINTS, Run
from mt_cli.training.advice import warnings_before
from mt_cli.training.distributed import World
from mt_cli.training.monitor import Monitor
from mt_cli.training.optimizer import FIRST_SCALE_LOG2
from mt_cli.training.other_runs import load_teachers
from mt_cli.training.trackers import tracking
from mt_cli.training.trainer import StepReport, Trainer
from mt_cli.training.validator import Validator

log = logging.getLogger(__name__)

MAX_SKIPS = 10
"""Give up after this many non-finite updates in a row."""
DIVERGED = 3.0
"""Training has diverged when the validation loss exceeds a uniform guess's by this factor."""


class Session:
    """One session of training, from a start or a resume to the end."""

    def __init__(
        self,
        run: Run,
        prepared: Prepared,
        runtime: Runtime,
        world: World,
        *,
        environment: Mapping[str, object],
        time_limit_s: float | None = None,
        validates_at_limit: bool = True,
    ) -> None:
        """Build model and trainer for `run.config`, and load the newest usable checkpoint, if any.

        The time limit counts from here. With `validates_at_limit`, the model is validated when it
        is reached.
        """
        self._began_at = time.monotonic()
        self._time_limit_s = math.inf if time_limit_s is None else time_limit_s
        self._validates_at_limit = validates_at_limit
        self._run = run
        self._prepared = prepared
        self._runtime = runtime
        self._world = world
        seed = run.config.runtime.seed
        self.model = run.build_model(seed=seed).to(runtime.device)
        self._trainer = Trainer(
            self.model,
            prepared.split(TRAIN),
            run.config.training,
            runtime=runtime,
            seed=seed,
            world=world,
        )
        self._state = CheckpointState(step=0)
        """The last checkpoint, without weights and optimizer."""
        last_kept_step = -1  # without a checkpoint, step 0 is validated again
        if run.checkpoints and world.is_first:  # the trainer broadcasts what is loaded
            self._resume_from_newest()
            last_kept_step = self._state.step
        self._elapsed_before_s = self._state.elapsed_s
        has_updates_left = self._state.step < self._trainer.total_steps
        if run.manifest.distil_from and has_updates_left:
            self._trainer.learn_from(load_teachers(run))
        if world.is_first:
            truncate_metrics(run.metrics_path, after_step=last_kept_step)
            if has_updates_left and not self._is_out_of_patience():
                run.note_environment(environment, after_step=self._state.step)
        self._last_kept_step = last_kept_step

    # The loop

    def loop(self, signals: StopSignals) -> TrainingState | Literal[""]:
        """Train to the end; returns how it ended, which only the first process knows."""
        ended: TrainingState | Literal[""] | None
        ended = self._world.ask_first(self._before_first_update)
        if ended is not None:
            return ended
        for report in self._trainer.run():
            received = self._world.maximum(signals.received or 0)  # any process's
            if received and self._world.is_first:
                signals.remember(received)
            ended = self._world.ask_first(partial(self._after_update, report, signals))
            if ended is not None:
                return ended
        return "finished"

    def _before_first_update(self) -> TrainingState | None:
        """Validate weights from another run; returns why training ends, if it does."""
        if self._run.manifest.init_from is not None and self._state.best_step is None:
            self._validate()
            self._save()
        self._monitor.start_clock()
        return "early_stop" if self._is_out_of_patience() else None

    def _after_update(self, report: StepReport, signals: StopSignals) -> TrainingState | None:
        """Log, validate, save or stop if due; returns why training ends, if it does."""
        is_last = report.step == self._trainer.total_steps
        self._monitor.on_update(report)
        if is_last or report.step % self._run.config.training.log_every == 0:
            self._check_skips()
            self._monitor.log_step()

        if self._is_due(report):
            self._validate()
            self._save()

        if signals.received and not is_last:
            self._stop(signals.received)
        if self._is_out_of_patience():
            return "early_stop"
        if self._elapsed_s(in_session=True) > self._time_limit_s and not is_last:
            if self._state.step != report.step:
                if self._validates_at_limit:
                    self._validate(counts_for_patience=False)
                self._save()
            return "time_limit"
        return None

    def _is_due(self, report: StepReport) -> bool:
        """Whether a validation follows this update."""
        if report.step == self._trainer.total_steps:
            return True
        every = self._run.config.training.validate_every
        return report.step % every == 0 if every else report.is_end_of_epoch

    def _is_out_of_patience(self) -> bool:
        return 0 < self._run.config.training.patience <= self._state.validations_without_gain

    # Parts of the loop

    def run(self, signals: StopSignals, *, config_path: Path) -> None:
        """Train in the first process to the end, a limit, or one of `signals`.

        `config_path` is only logged.
        """
        if signals.received and self._world.size == 1:
            self._stop(signals.received)  # not with several processes: the others have begun
        self._monitor.log_start(config_path, self._runtime, num_processes=self._world.size)
        step = self._trainer.step
        total_steps = self._trainer.total_steps
        if step == 0:
            for warning in warnings_before(
                self._run.config,
                num_pairs=self._trainer.num_pairs,
                total_steps=total_steps,
            ):
                log.warning("%s", warning)
        elif step < total_steps:
            self._warn_of_another_rate()
        else:
            log.info(
                "training is already finished; to train longer, raise training.max_epochs or "
                "max_steps"
            )
        self._write_status("running")
        try:
            with (
                tracking(self._run, after_step=self._last_kept_step) as tracker,
                self._monitor.watching(tracker),
            ):
                ended = self.loop(signals)
                assert ended  # this is the first process
        except BaseException as error:
            if not isinstance(error, StoppedError | DivergedError):
                with suppress(MtCliError, OSError):  # the first error is the one to report
                    self._write_status("failed", reason=f"{type(error).__name__}: {error}")
            raise
        self._write_status(ended)
        log.info("%s  step %d  elapsed %.0f s", ended, self._trainer.step, self._elapsed_s())
        self._monitor.log_end(ended)

    def _validate(self, *, counts_for_patience: bool = True) -> None:
        """Validate the model, and note if it is the best so far; ties go to the lower loss."""
        self._check_finite()
        validator = self._validator
        began_at = time.monotonic()
        total = len(validator.sources)
        with (
            self._monitor.clock_stopped(),
            progress_shown("validating", unit="lines", total=total) as on_progress,
        ):
            validation = validator.validate(self._trainer.step, on_progress=on_progress)
        guessing = math.log(self._run.tokenizers.tgt.vocab_size)
        if not validation.nll <= DIVERGED * guessing:  # "not <=" also catches NaN
            self._give_up(f"the loss on val is {validation.nll:.1f}, guessing has {guessing:.1f}")
        score = validation.bleu.score if validator.best_by == "bleu" else -validation.nll
        best = self._state
        is_equal_and_surer = score == best.best_score and validation.nll < (best.best_nll or 0.0)
        is_best = best.best_score is None or score > best.best_score or is_equal_and_surer
        if is_best:
            self._state = replace(
                best, best_score=score, best_nll=validation.nll, best_step=validation.step
            )
        if counts_for_patience:
            without_gain = 0 if is_best else self._state.validations_without_gain + 1
            self._state = replace(self._state, validations_without_gain=without_gain)
        elapsed_s = time.monotonic() - began_at
        self._monitor.log_validation(validation, is_best=is_best, validation_s=elapsed_s)

    def _save(self) -> None:
        """Write a checkpoint, point `last` to it, and remove checkpoints no longer needed."""
        self._check_finite()
        self._state = replace(self._state, step=self._trainer.step, elapsed_s=self._elapsed_s())
        name = checkpoint_name(self._state.step)
        with self._monitor.clock_stopped():
            save_checkpoint(
                self._run.folder / CHECKPOINTS / name,
                dict(self.model.named_parameters()),
                tensors=self._trainer.state_dict(),
                state=self._state,
            )
            self._point_to(last=name)
            self._run.remove_unused_checkpoints(last=name)
            self._write_status("running")

    def _stop(self, signal_number: int) -> Never:
        step = self._trainer.step
        if self._state.step != step:
            self._save()
        self._write_status("stopped", reason=signal.Signals(signal_number).name)
        message = "stopped before the first update; start it with --resume"
        if step:
            message = f"stopped at step {step} and saved the state; continue with --resume"
        raise StoppedError(message, signal_number=signal_number)

    def _resume_from_newest(self) -> None:
        """Load model and trainer from the newest usable checkpoint.

        Raises:
            DataError: no checkpoint is complete with finite weights.
        """
        failures: list[str] = []
        for name in reversed(self._run.checkpoints):
            folder = self._run.folder / CHECKPOINTS / name
            try:
                shapes = self._run.parameter_shapes
                state = read_state(folder)
                tensors = read_training_tensors(folder, shapes)
                self.model.load_state_dict(read_weights(folder, shapes), strict=False)
                self._trainer.restore(state.step, tensors)
            except (DataError, KeyError, OSError, ValueError) as error:
                failures.append(
                    str(error) if isinstance(error, DataError) else f"{folder}: {error}"
                )
                continue
            for failure in failures:
                log.warning("%s", failure)
            if failures:
                log.warning("training continues from %s, the newest usable checkpoint", name)
            has_best = state.best_step is not None
            if has_best and checkpoint_name(state.best_step or 0) not in self._run.checkpoints:
                state = replace(state, best_score=None, best_nll=None, best_step=None)
            self._state = state
            self._point_to(last=name)  # a kill may have come before this was done
            if not failures:
                self._run.remove_unused_checkpoints(last=name)
            if state.step > self._trainer.total_steps:
                log.warning(
                    "the run is at step %d already, past the last step %d",
                    state.step,
                    self._trainer.total_steps,
                )
            return
        raise DataError(f"{failures[0]}; there is no other usable checkpoint; train again")

    def _point_to(self, *, last: str) -> None:
        if self._state.best_step is not None:
            self._run.point("best", to=checkpoint_name(self._state.best_step))
        self._run.point("last", to=last)

    # Failures

    def _check_skips(self) -> None:
        """Give up if updates since the last log line were not finite; waits for the device."""
        skipped, in_a_row = self._monitor.num_skipped()
        if self._runtime.precision == "fp16":
            # fp16 skips updates until its loss scale has been halved often enough.
            if in_a_row >= MAX_SKIPS + FIRST_SCALE_LOG2:
                self._give_up(f"the loss or the gradient is not finite, {in_a_row} times in a row")
        elif skipped:
            self._give_up("the loss or the gradient is not finite")

    def _check_finite(self) -> None:
        """Give up if updates, weights or optimizer are not finite; waits for the device."""
        self._check_skips()
        tensors: list[Tensor] = [*self.model.parameters(), *self._trainer.state_dict().values()]
        if not torch.stack([tensor.isfinite().all() for tensor in tensors]).all():
            self._give_up("the weights are not finite")

    def _give_up(self, found: str) -> Never:
        self._write_status("diverged", reason=found)
        kept = "there is no checkpoint yet"
        if self._run.checkpoints:
            kept = "the last good checkpoint is kept"
        step = self._trainer.step
        advice = "lower training.peak_lr or raise training.warmup_steps"
        if step == 0:
            advice = "the model of training.init_from does not fit this data"
        raise DivergedError(f"step {step}: {found}; {kept}; {advice}")

    # Reports

    @cached_property
    def _validator(self) -> Validator:
        """Needed only in the first process."""
        return Validator(self.model, self._run, self._prepared, runtime=self._runtime)

    @cached_property
    def _monitor(self) -> Monitor:
        """Needed only in the first process."""
        return Monitor(self._run, self._trainer, self._validator, elapsed_s=self._elapsed_s)

    def _warn_of_another_rate(self) -> None:
        """Warn if the learning rates before the resume followed another schedule or length."""
        before, _ = read_metrics(self._run.metrics_path)
        if not before:
            return
        lr = before[-1].lr
        planned = self._trainer.rate_at(before[-1].step)
        if not math.isclose(lr, planned, rel_tol=0.01):
            log.warning(
                "with the new length or schedule of training, the learning rate jumps from %.1e "
                "to %.1e",
                lr,
                self._trainer.rate_at(self._trainer.step + 1),
            )

    def _write_status(self, state: TrainingState, *, reason: str = "") -> None:
        self._monitor.write_status(state, self._state, reason=reason)

    def _elapsed_s(self, *, in_session: bool = False) -> float:
        """Seconds of training, with earlier sessions unless `in_session`."""
        in_this = time.monotonic() - self._began_at
        return in_this if in_session else self._elapsed_before_s + in_this
