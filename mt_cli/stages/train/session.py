"""One stretch of training: updates, validations, checkpoints and limits, from a start or a resume to an end.

Decides what follows from a score, a limit or a signal; knows nothing of how an update is made.
"""

import logging
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Never

from mt_cli.artefacts.checkpoint import CheckpointState, save_checkpoint
from mt_cli.artefacts.prepared import Prepared
from mt_cli.artefacts.run import Run
from mt_cli.artefacts.run_facts import note_resumption
from mt_cli.config import Config
from mt_cli.errors import DivergedError, MtCliError, StoppedError
from mt_cli.machine.device import Runtime
from mt_cli.machine.signals import StopSignals
from mt_cli.machine.world import World
from mt_cli.stages.train.advice import after_training, before_training, log_warnings, plan_of
from mt_cli.stages.train.divergence import diverged, found_in_updates, found_in_weights
from mt_cli.stages.train.meter import Meter
from mt_cli.stages.train.narrator import Narrator
from mt_cli.stages.train.opening import Opening
from mt_cli.stages.train.pace import Pace
from mt_cli.stages.train.parent import load_parent
from mt_cli.stages.train.result import TrainResult
from mt_cli.stages.train.resuming import finish_saving, restore
from mt_cli.stages.train.tensorboard import EventFiles
from mt_cli.stages.train.validation import Validation, Validator
from mt_cli.training.trainer import StepReport, Trainer

log = logging.getLogger(__name__)


class Session:
    """One stretch of training, from a start or a resume to an end."""

    def __init__(
        self,
        run: Run,
        config: Config,
        prepared: Prepared,
        runtime: Runtime,
        world: World,
        *,
        environment: Mapping[str, object],
        config_path: Path,
        started_at: float,
        time_limit_s: float | None,
        has_tensorboard: bool,
    ) -> None:
        """In a `world` of several processes, the first scores, saves and decides, and the others follow."""
        self._run, self._config = run, config
        self._started_at, self._limit_s = started_at, math.inf if time_limit_s is None else time_limit_s
        seed = config.runtime.seed
        self._model = run.build_model(backend=config.model.backend, seed=seed).to(runtime.device)
        split = prepared.split("train")
        self._trainer = Trainer(self._model, split, config.training, runtime=runtime, seed=seed, world=world)
        self._plan = plan_of(config, split, run.tokenizers, total_steps=self._trainer.total_steps)
        self._world = world
        self._validator = Validator(self._model, run, prepared, config, runtime=runtime)
        self._judged: Validation | None = None
        self._meter = Meter()
        self._state = CheckpointState(step=0, epoch=0, update_of_epoch=0)
        self._elapsed_before_s = 0.0
        if run.pointer("last"):
            self._restore()
        else:
            load_parent(run, self._model)
        # Without a checkpoint, the score of the start is made anew too.
        last_kept = self._state.step if run.pointer("last") else -1
        if world.is_first:
            run.forget_metrics_after(last_kept)
            finish_saving(run, self._state)
            if self._state.step < self._trainer.total_steps and not self._is_out_of_patience():
                note_resumption(run.folder, environment, after_step=self._state.step)
        self._opening = Opening(
            run.folder,
            config_path,
            config,
            runtime,
            world,
            self._trainer,
            num_train=len(split),
            num_val=self._validator.num_pairs,
        )
        events = EventFiles(run.folder, after_step=last_kept) if has_tensorboard else None
        self._narrator = Narrator(
            run,
            self._trainer,
            Pace.of(
                run,
                self._trainer,
                validate_every=config.training.validate_every,
                validation_tokens=self._validator.num_tokens,
            ),
            device=runtime.device,
            elapsed_s=self._elapsed_s,
            events=events,
        )

    def run(self, signals: StopSignals) -> TrainResult:
        """Train until the end, a limit, or one of `signals`."""
        if signals.received is not None and self._world.size == 1:  # others have begun their first update
            self._stop(signals.received)
        self._narrator.tell_opening(self._opening)
        if not self._trainer.progress.step:
            log_warnings(before_training(self._config, self._plan))
        self._write_status("running")
        try:
            with self._narrator.watching():
                reason = self._loop(signals)
        except (StoppedError, DivergedError):
            raise
        except BaseException:
            with suppress(MtCliError, OSError):  # the error that came first is the one to tell
                self._write_status("failed")
            raise
        self._write_status(reason)
        if self._judged is not None and reason != "time_limit":
            bleu, hyps = self._judged.bleu.score, self._judged.hyps
            log_warnings(after_training(bleu, hyps=hyps, sources=self._validator.sources))
        step = self._trainer.progress.step
        log.info("%s  step %d  elapsed %.0f s", reason, step, self._elapsed_s())
        return TrainResult(self._run.folder, reason, step, self._state.best_step, self._state.best_score)

    def follow(self) -> None:
        """Train along with the first process until it says that it is over."""
        self._score_start()
        if self._is_out_of_patience():
            return
        for _ in self._trainer.run():
            if not self._world.agree(goes_on=True):
                return

    def _loop(self, signals: StopSignals) -> str:
        self._score_start()
        if self._is_out_of_patience():
            return "early_stop"
        for report in self._trainer.run():
            try:
                reason = self._after_update(report, signals)
            except BaseException:
                self._world.announce_end()
                raise
            self._world.agree(goes_on=reason is None)
            if reason is not None:
                return reason
        return "finished"

    def _score_start(self) -> None:
        """If training starts from the weights of another run, score those while other processes wait."""
        if self._run.init_from is not None:  # in all processes alike, whatever scores they have found saved
            has_score = self._state.best_step is not None
            self._world.after_first((lambda: None) if has_score else self._validate, lambda: None)

    def _after_update(self, report: StepReport, signals: StopSignals) -> str | None:
        """Log, score and save what is due after an update; gives the reason to end, if there is one."""
        self._meter.add(report)
        self._narrator.count(report, limit_left_s=self._limit_left_s())
        is_last = report.step == self._trainer.total_steps
        if is_last or report.step % self._config.training.log_every == 0:
            self._stop_if(found_in_updates(self._meter, self._config.training))
            reading = self._meter.read()
            if reading is not None:
                self._narrator.tell_step(reading)
        if is_last or self._is_validation_due(report):
            self._validate()
        if signals.received is not None:
            self._stop(signals.received)
        if self._is_out_of_patience():
            return "early_stop"
        if not is_last and self._limit_left_s() < 0:
            self._save_at_limit()
            return "time_limit"
        return None

    def _is_validation_due(self, report: StepReport) -> bool:
        every = self._config.training.validate_every
        return report.step % every == 0 if every else report.is_end_of_epoch

    def _is_out_of_patience(self) -> bool:
        return 0 < self._config.training.patience <= self._state.validations_without_gain

    def _validate(self) -> None:
        """Score the model, save a checkpoint, and remember whether it is the best."""
        self._stop_if_diverged()
        stretch = self._meter.end_stretch()
        with self._narrator.validating():
            began_at = time.monotonic()
            validation = self._validator.validate(self._trainer.progress.step)
            validation_s = time.monotonic() - began_at
            finite = math.isfinite(validation.nll)
            self._stop_if(None if finite else f"the loss on val is {validation.nll}")
            is_best = self._judge(validation)
            self._narrator.tell_validation(validation, stretch, is_best=is_best, validation_s=validation_s)
            self._save(is_best=is_best)
        self._write_status("running")
        self._meter.resume()

    def _judge(self, validation: Validation) -> bool:
        """Whether the model is now the best; what follows from it is remembered."""
        best_by_bleu = self._config.training.best_by == "bleu"
        score = validation.bleu.score if best_by_bleu else -validation.nll
        is_best = self._state.best_score is None or score > self._state.best_score
        if is_best or self._judged is None:
            self._judged = validation
        if is_best:
            self._state = replace(
                self._state, best_score=score, best_step=validation.step, validations_without_gain=0
            )
        else:
            waited = self._state.validations_without_gain + 1
            self._state = replace(self._state, validations_without_gain=waited)
        return is_best

    def _save(self, *, is_best: bool) -> None:
        self._stop_if_diverged()
        progress = self._trainer.progress
        self._state = replace(
            self._state,
            step=progress.step,
            epoch=progress.epoch,
            update_of_epoch=progress.update_of_epoch,
            elapsed_s=self._elapsed_s(),
        )
        folder = self._run.place_of_checkpoint(progress.step)
        tensors = {**self._trainer.tensors(), **self._meter.tensors()}
        save_checkpoint(folder, self._model, tensors=tensors, state=self._state)
        if is_best:
            self._run.point("best", step=progress.step)
        self._run.point("last", step=progress.step)
        self._run.remove_unused_checkpoints(last=progress.step)

    def _restore(self) -> None:
        self._state = restore(self._run, self._trainer, self._meter)
        self._elapsed_before_s = self._state.elapsed_s
        if self._state.step > self._trainer.total_steps:
            log.warning(
                "the run is at step %d, past the %d asked for", self._state.step, self._trainer.total_steps
            )

    def _save_at_limit(self) -> None:
        """Save without judging, so that a run made in pieces equals one made at once."""
        if self._state.best_step is None:
            self._validate()  # or there would be no best checkpoint to use
        elif self._state.step != self._trainer.progress.step:
            self._save(is_best=False)

    def _stop_if_diverged(self) -> None:
        """Stop before anything is made of weights that are of no use."""
        tensors = [*self._model.parameters(), *self._trainer.tensors().values()]
        self._stop_if(found_in_updates(self._meter, self._config.training) or found_in_weights(tensors))

    def _stop_if(self, found: str | None) -> None:
        """Stop if anything was found wrong."""
        if found is not None:
            self._write_status("diverged")
            has_checkpoint = bool(self._run.checkpoints)
            raise diverged(found, step=self._trainer.progress.step, has_checkpoint=has_checkpoint)

    def _stop(self, signal_number: int) -> Never:
        step = self._trainer.progress.step
        if self._state.step != step:
            self._save(is_best=False)
        self._write_status("stopped")
        message = "stopped before the first update; --resume starts with it"
        if step:
            message = f"stopped at step {step}; the state is saved, --resume goes on from there"
        raise StoppedError(message, signal_number=signal_number)

    def _write_status(self, state: str) -> None:
        self._run.write_status(
            {
                "state": state,
                "step": self._trainer.progress.step,
                "total_steps": self._trainer.total_steps,
                "epoch": self._trainer.progress.epoch,
                "best_step": self._state.best_step,
                "best_score": self._state.best_score,
                "best_by": self._config.training.best_by,
                "elapsed_s": round(self._elapsed_s(), 1),
            }
        )

    def _elapsed_s(self) -> float:
        return self._elapsed_before_s + time.monotonic() - self._started_at

    def _limit_left_s(self) -> float:
        """Seconds that the time limit leaves."""
        return self._limit_s - (time.monotonic() - self._started_at)
