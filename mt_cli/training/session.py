"""One stretch of training, from a start or a resume to an end.

Decides when to validate, save and stop.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Never

import torch
from torch import Tensor

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
from mt_cli.runs.run import CHECKPOINTS, Run, number_in, read_metrics, truncate_metrics
from mt_cli.training.distributed import World
from mt_cli.training.monitor import Meter, Monitor
from mt_cli.training.optimizer import FIRST_SCALE_LOG2
from mt_cli.training.other_runs import load_teachers
from mt_cli.training.trackers import tracking
from mt_cli.training.trainer import StepReport, Trainer
from mt_cli.training.validator import Validation, Validator
from mt_cli.training.warnings import warning_after, warnings_before

log = logging.getLogger(__name__)


MAX_SKIPS = 10
"""After this many skipped updates in a row, training ends even if it may skip some: it would not
recover.
"""
DIVERGED = 3.0
"""Training has diverged when the validation loss exceeds a uniform guess's by this factor."""


@dataclass(frozen=True)
class TimeLimit:
    """When a session ends, counted from where it began."""

    began_at: float
    """Of `time.monotonic`."""
    seconds: float | None
    """None is no limit."""
    validates_at_end: bool
    """Whether the model is validated when the time is up."""

    def elapsed_s(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self.began_at

    def left_s(self) -> float:
        """Seconds that are left; negative when the time is up."""
        return math.inf if self.seconds is None else self.seconds - self.elapsed_s()


class Session:
    """One stretch of training, from a start or a resume to an end."""

    def __init__(
        self,
        run: Run,
        prepared: Prepared,
        runtime: Runtime,
        world: World,
        *,
        environment: Mapping[str, object],
        time_limit: TimeLimit,
    ) -> None:
        """In a `world` of several processes, the first scores, saves and decides; others follow.

        The config is `run.config`. Weights and state come from the run's newest usable checkpoint,
        if there is one.
        """
        self._run = run
        self._prepared = prepared
        self._runtime = runtime
        self._world = world
        self._time_limit = time_limit
        seed = run.config.runtime.seed
        self.model = run.build_model(seed=seed).to(runtime.device)
        self._trainer = Trainer(
            self.model,
            prepared.split("train"),
            run.config.training,
            runtime=runtime,
            seed=seed,
            world=world,
        )
        self._meter = Meter()
        self._checkpointer = Checkpointer(run, self._trainer, self._meter)
        self._state = CheckpointState(step=0)
        self._best_validation: Validation | None = None
        """This session's best, or its first if none was best."""
        # Without a checkpoint, step 0 is validated again, so its record goes too.
        self._last_kept_step = -1
        if run.checkpoints and world.is_first:  # the trainer gives the others what it loads
            self._state = self._checkpointer.load_newest()
            self._last_kept_step = self._state.step
        if run.distil_from and self._state.step < self._trainer.total_steps:
            self._trainer.learn_from(load_teachers(run))
        self._elapsed_before_s = self._state.elapsed_s
        if world.is_first:
            truncate_metrics(run.metrics_path, after_step=self._last_kept_step)
            if self._state.step < self._trainer.total_steps and not self._is_out_of_patience():
                run.note_environment(environment, after_step=self._state.step)
        self._monitor = Monitor(run, self._trainer, self._meter, elapsed_s=self._elapsed_s)

    def run(self, signals: StopSignals, *, config_path: Path) -> None:
        """Train until the end, a limit, or one of `signals`; `config_path` is only logged."""
        if signals.received is not None and self._world.size == 1:
            self._stop(signals.received)  # with several processes, the others have begun
        self._monitor.log_start(
            config_path,
            self._runtime,
            self._validator,
            num_processes=self._world.size,
            num_train=len(self._prepared.split("train")),
        )
        if self._trainer.step == 0:
            self._warn_before()
        else:
            self._warn_of_another_rate()
        if self._trainer.step >= self._trainer.total_steps:
            log.info(
                "nothing is left to train; to train longer, raise training.max_epochs or max_steps"
            )
        self._write_status("running")
        try:
            with (
                tracking(self._run, after_step=self._last_kept_step) as tracker,
                self._monitor.watching(tracker),
            ):
                reason = self.loop(signals)
        except (StoppedError, DivergedError):
            raise
        except BaseException:
            with suppress(MtCliError, OSError):  # the error that came first is the one to report
                self._write_status("failed")
            raise
        self._write_status(reason)
        if reason != "time_limit":
            self._warn_after()
        step = self._trainer.step
        log.info("%s  step %d  elapsed %.0f s", reason, step, self._elapsed_s())
        self._monitor.log_end()

    def loop(self, signals: StopSignals) -> str:
        """Train until the end; returns the reason, which only the first process knows."""
        reason = self._decide(self._before_first_update)
        if reason is not None:
            return reason
        for report in self._trainer.run():
            if self._is_due(report) and not self._trainer.has_same_state_everywhere():
                log.warning(
                    "the processes' weights have drifted apart; all continue with the first one's"
                )
                self._trainer.broadcast_state()
            signal_number = self._world.maximum(signals.received or 0)
            if signal_number and self._world.is_first:
                signals.remember(signal_number)
            reason = self._decide(partial(self._after_update, report, signals))
            if reason is not None:
                return reason
        return "finished"

    def _decide(self, reason_to_end: Callable[[], str | None]) -> str | None:
        """What `reason_to_end` says in the first process; None is to go on.

        The others learn only whether there is a reason.
        """
        reason: str | None = ""
        if self._world.is_first:
            try:
                reason = reason_to_end()
            except BaseException:
                self._world.announce_end()
                raise
        goes_on = self._world.broadcast_bool(reason is None)
        return None if goes_on else reason

    # When to validate, save and stop

    def _before_first_update(self) -> str | None:
        """Validate what another run has given this one; returns the reason to end, if any."""
        if self._run.init_from is not None and self._state.best_step is None:
            self._validate()
        if self._is_out_of_patience():
            return "early_stop"
        self._meter.resume()
        return None

    def _after_update(self, report: StepReport, signals: StopSignals) -> str | None:
        """Log, validate and save what is due after an update; returns the reason to end, if any."""
        self._monitor.on_update(report, limit_left_s=self._time_limit.left_s())
        is_last = report.step == self._trainer.total_steps
        if is_last or report.step % self._run.config.training.log_every == 0:
            self._check_skips()
            self._monitor.log_step()
        if self._is_due(report):
            self._validate()
        if signals.received is not None and not is_last:
            self._stop(signals.received)
        if self._is_out_of_patience():
            return "early_stop"
        if not is_last and self._time_limit.left_s() < 0:
            if self._state.step != report.step:
                if self._time_limit.validates_at_end:
                    self._validate(is_extra=True)
                else:
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

    def _validate(self, *, is_extra: bool = False) -> None:
        """Score the model, save a checkpoint, and remember whether it is the best.

        An extra validation, which an uninterrupted training would not make, does not use up
        patience, but the model may be the best.
        """
        self._check_finite()
        self._meter.pause()
        began_at = time.monotonic()
        total = len(self._validator.sources)
        with progress_shown("validating", unit="lines", total=total) as on_progress:
            validation = self._validator.validate(self._trainer.step, on_progress=on_progress)
        validation_s = time.monotonic() - began_at
        guessing = math.log(self._run.tokenizers.tgt.vocab_size)
        if not validation.nll <= DIVERGED * guessing:  # so written, it covers NaN
            self._give_up(
                f"the loss on val is {validation.nll:.1f}, a uniform guess has {guessing:.1f}"
            )
        state = self._state
        is_best = self._is_better(validation, than=state.best_score, nll=state.best_nll)
        self._remember(validation, is_best=is_best, is_extra=is_extra)
        self._monitor.log_validation(validation, is_best=is_best, validation_s=validation_s)
        self._save()
        self._write_status("running")
        self._meter.resume()

    def _score(self, validation: Validation) -> float:
        """The score by which checkpoints are compared; higher is better."""
        if self._validator.best_by == "bleu":
            return validation.bleu.score
        return -validation.nll

    def _is_better(self, validation: Validation, *, than: float | None, nll: float | None) -> bool:
        """Whether it beats the score `than`, if there is one. Of equals, the lower loss wins."""
        if than is None:
            return True
        score = self._score(validation)
        if score == than and nll is not None:
            return validation.nll < nll
        return score > than

    def _remember(self, validation: Validation, *, is_best: bool, is_extra: bool) -> None:
        score, nll = self._score(validation), validation.nll
        if is_best or self._best_validation is None:
            self._best_validation = validation
        if is_best:
            self._state = replace(
                self._state, best_score=score, best_nll=nll, best_step=validation.step
            )
        if is_extra:
            return
        without_gain = self._state.validations_without_gain + 1
        to_beat = self._state.score_to_beat
        if self._is_better(validation, than=to_beat, nll=self._state.nll_to_beat):
            without_gain = 0
            self._state = replace(self._state, score_to_beat=score, nll_to_beat=nll)
        self._state = replace(self._state, validations_without_gain=without_gain)

    def _save(self) -> None:
        self._check_finite()
        self._state = replace(self._state, step=self._trainer.step, elapsed_s=self._elapsed_s())
        self._checkpointer.save(self._state)

    # What ends a training

    def _check_skips(self) -> None:
        """Stop if updates since the last log line were not finite; waits for the device."""
        since_log, in_a_row = self._meter.num_skipped()
        is_fp16 = self._runtime.precision == "fp16"
        # fp16 skips updates until its loss scale fits, which may have to be halved often.
        max_skips = MAX_SKIPS + FIRST_SCALE_LOG2 if is_fp16 else MAX_SKIPS
        if in_a_row >= max_skips:
            self._give_up(f"the loss or the gradient is not finite, {in_a_row} times in a row")
        if since_log and not is_fp16 and self._run.config.training.on_nonfinite == "stop":
            self._give_up("the loss or the gradient is not finite")

    def _check_finite(self) -> None:
        """Stop if updates, weights or optimizer are not finite; waits for the device."""
        self._check_skips()
        tensors: list[Tensor] = [*self.model.parameters(), *self._trainer.state_dict().values()]
        is_finite = torch.stack([tensor.isfinite().all() for tensor in tensors]).all()
        if not is_finite:
            self._give_up("the weights are not finite any more")

    def _give_up(self, found: str) -> Never:
        self._write_status("diverged")
        kept = "there is no checkpoint yet"
        if self._run.checkpoints:
            kept = "the last good checkpoint is kept"
        step = self._trainer.step
        advice = "lower training.peak_lr or raise training.warmup_steps"
        if step == 0:
            advice = "the model of training.init_from does not suit these data"
        raise DivergedError(f"step {step}: {found}; {kept}; {advice}")

    def _stop(self, signal_number: int) -> Never:
        step = self._trainer.step
        if self._state.step != step:
            self._save()
        self._write_status("stopped")
        message = "stopped before the first update; --resume starts with it"
        if step:
            message = f"stopped at step {step}; the state is saved, --resume continues from there"
        raise StoppedError(message, signal_number=signal_number)

    # Reports

    @cached_property
    def _validator(self) -> Validator:
        """Only the first process needs one."""
        return Validator(self.model, self._run, self._prepared, runtime=self._runtime)

    def _warn_before(self) -> None:
        split = self._prepared.split("train")
        tokenizers = self._run.tokenizers
        vocab_size = tokenizers.src.vocab_size
        if not tokenizers.joint:
            vocab_size += tokenizers.tgt.vocab_size
        for warning in warnings_before(
            self._run.config,
            num_pairs=len(split),
            num_tokens=len(split.src.ids) + len(split.tgt.ids),
            vocab_size=vocab_size,
            total_steps=self._trainer.total_steps,
            num_processes=self._world.size,
        ):
            log.warning("%s", warning)

    def _warn_of_another_rate(self) -> None:
        """Warn where the rates before the resume were those of another schedule or length."""
        before = [each for each in read_metrics(self._run.metrics_path) if each["kind"] == "step"]
        step = self._trainer.step
        if not before or step >= self._trainer.total_steps:
            return
        path = self._run.metrics_path
        lr = number_in(before[-1], "lr", path=path)
        planned = self._trainer.rate_at(int(number_in(before[-1], "step", path=path)))
        if not math.isclose(lr, planned, rel_tol=0.01):
            log.warning(
                "with this length and schedule of training, the learning rate goes from %.1e to "
                "%.1e",
                lr,
                self._trainer.rate_at(step + 1),
            )

    def _warn_after(self) -> None:
        is_smoke_run = self._run.config.training.max_steps is not None
        if self._best_validation is None or not self._validator.has_bleu or is_smoke_run:
            return
        warning = warning_after(
            self._best_validation.bleu.score,
            hyps=self._best_validation.hyps,
            sources=self._validator.sources,
        )
        if warning is not None:
            log.warning("%s", warning)

    def _write_status(self, state: str) -> None:
        self._monitor.write_status(state, self._state, best_by=self._validator.best_by)

    def _elapsed_s(self) -> float:
        return self._elapsed_before_s + self._time_limit.elapsed_s()


class Checkpointer:
    """Keeps the checkpoints of one run: the last and the best."""

    def __init__(self, run: Run, trainer: Trainer, meter: Meter) -> None:
        """A checkpoint holds the weights and the state of `trainer`, and the sums of `meter`."""
        self._run = run
        self._trainer = trainer
        self._meter = meter

    def save(self, state: CheckpointState) -> None:
        """Write a checkpoint, which is the last one now, and remove those that nothing needs."""
        name = checkpoint_name(state.step)
        save_checkpoint(
            self._run.folder / CHECKPOINTS / name,
            dict(self._trainer.model.named_parameters()),
            tensors={**self._trainer.state_dict(), **self._meter.state_dict()},
            state=state,
        )
        self._point_to(state, last=name)
        self._run.remove_unused_checkpoints(last=name)

    def load_newest(self) -> CheckpointState:
        """Fill trainer and meter from the newest checkpoint that can be used.

        Raises:
            DataError: none is complete, with finite weights.
        """
        run = self._run
        failures: list[str] = []
        for name in reversed(run.checkpoints):
            try:
                state = self._load(name)
            except DataError as error:
                failures.append(str(error))
                continue
            for failure in failures:
                log.warning("%s", failure)
            if failures:
                log.warning("training continues from %s, the newest usable checkpoint", name)
            if state.best_step is None or checkpoint_name(state.best_step) not in run.checkpoints:
                state = replace(state, best_score=None, best_nll=None, best_step=None)
            self._point_to(state, last=name)  # a kill may have kept this from being done
            if not failures:
                run.remove_unused_checkpoints(last=name)
            if state.step > self._trainer.total_steps:
                log.warning(
                    "the run is at step %d, past the %d asked for",
                    state.step,
                    self._trainer.total_steps,
                )
            return state
        raise DataError(f"{failures[0]}; no other checkpoint can be used: train anew")

    def _load(self, name: str) -> CheckpointState:
        folder = self._run.folder / CHECKPOINTS / name
        shapes = self._run.parameter_shapes
        state = read_state(folder)
        tensors = read_training_tensors(folder, shapes)
        self._trainer.model.load_state_dict(read_weights(folder, shapes), strict=False)
        try:
            self._trainer.restore(state.step, tensors)
            self._meter.load_state_dict(tensors)
        except KeyError as error:
            raise DataError(f"{folder}: its training state lacks {error}") from error
        except ValueError as error:
            raise DataError(f"{folder}: {error}") from error
        return state

    def _point_to(self, state: CheckpointState, *, last: str) -> None:
        if state.best_step is not None:
            self._run.point("best", to=checkpoint_name(state.best_step))
        self._run.point("last", to=last)
