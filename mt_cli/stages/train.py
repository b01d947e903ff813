"""The `train` command: from a config and prepared data to a run folder with a best and a last checkpoint.

Joins trainer, validation, checkpoints and logs; knows nothing of how an update is made.
"""

import logging
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Never

from tqdm import tqdm

from mt_cli import __version__
from mt_cli.artefacts.checkpoint import (
    CheckpointState,
    checkpoint_name,
    load_state,
    load_training_tensors,
    load_weights,
    save_checkpoint,
)
from mt_cli.artefacts.prepared import Prepared, check_prepared_for, open_prepared
from mt_cli.artefacts.run import PreparedReference, Run, create_run, open_run
from mt_cli.config import Config
from mt_cli.errors import DivergedError, StoppedError, UsageError
from mt_cli.runtime import (
    Runtime,
    describe_machine,
    memory_errors_explained,
    seed_everything,
    set_up_runtime,
)
from mt_cli.stages.meter import Meter, Reading
from mt_cli.stages.signals import StopSignals
from mt_cli.stages.validation import Validation, Validator
from mt_cli.training.trainer import Progress, StepReport, Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """How training ended."""

    folder: Path
    state: str
    """`finished`, `early stop` or `time limit`."""
    step: int
    best_step: int | None
    best_score: float | None
    """Validation BLEU, or minus the validation loss, as `training.best_by` says."""

    def as_json(self) -> dict[str, object]:
        """The form that `train --json` prints."""
        return {**asdict(self), "folder": str(self.folder)}


def train(
    config: Config,
    *,
    run_dir: Path,
    prepared_dir: Path,
    resume: bool = False,
    overwrite: bool = False,
    time_limit_s: float | None = None,
) -> TrainResult:
    """Train `config`'s model on `prepared_dir` into `run_dir`; `resume` goes on where a run stopped.

    Raises:
        UsageError: the run exists and neither `resume` nor `overwrite` is set, or `resume` finds none.
        DataError: the data are not prepared, or not as `config` wants them.
        DivergedError: the loss is no number any more.
        StoppedError: a signal came; the state is saved.
    """
    started_at = time.monotonic()
    runtime = set_up_runtime(
        device=config.runtime.device, precision=config.runtime.precision, threads=config.runtime.threads
    )
    prepared = open_prepared(prepared_dir)
    check_prepared_for(prepared, config)
    if resume:
        run = _reopen(run_dir, config, prepared)
    else:
        run = _create(run_dir, config, prepared, runtime, overwrite=overwrite)
    with _logging_to(run.log_path), memory_errors_explained("lower training.tokens_per_batch"):
        session = _Session(run, config, prepared, runtime, started_at=started_at, time_limit_s=time_limit_s)
        return session.run()


def _create(run_dir: Path, config: Config, prepared: Prepared, runtime: Runtime, *, overwrite: bool) -> Run:
    return create_run(
        run_dir,
        config,
        tokenizer_files=prepared.tokenizers.to_files(),
        prepared=PreparedReference(str(prepared.folder), prepared.sha256),
        environment={"mt_cli": __version__, **describe_machine(runtime)},
        overwrite=overwrite,
    )


def _reopen(run_dir: Path, config: Config, prepared: Prepared) -> Run:
    run = open_run(run_dir)
    if run.prepared.sha256 != prepared.sha256:
        raise UsageError(f"{run_dir} was trained on other data than {prepared.folder} holds now; train anew")
    for name in ("data", "tokenizer", "model"):
        if getattr(run.config, name) != getattr(config, name):
            raise UsageError(f"{run_dir} has another [{name}] than the config; --resume needs the same")
    return run


class _Session:
    """One stretch of training, from a start or a resume to an end."""

    def __init__(
        self,
        run: Run,
        config: Config,
        prepared: Prepared,
        runtime: Runtime,
        *,
        started_at: float,
        time_limit_s: float | None,
    ) -> None:
        self._run, self._config = run, config
        self._started_at, self._time_limit_s = started_at, time_limit_s
        seed = config.runtime.seed
        seed_everything(seed)
        self._model = run.build_model(backend=config.model.backend, seed=seed).to(runtime.device)
        self._trainer = Trainer(
            self._model, prepared.split("train"), config.training, runtime=runtime, seed=seed
        )
        self._validator = Validator(self._model, run, prepared, config, runtime=runtime)
        self._meter = Meter()
        self._state = CheckpointState(step=0, epoch=0, update_of_epoch=0)
        self._elapsed_before_s = 0.0
        if run.pointer("last"):
            self._restore()

    def run(self) -> TrainResult:
        """Train until the end, a limit, or a signal."""
        trainer = self._trainer
        num_parameters = sum(parameter.numel() for parameter in self._model.parameters())
        log.info("parameters %d  steps an epoch %d", num_parameters, trainer.steps_per_epoch)
        self._write_status("running")
        with StopSignals() as signals, self._progress_bar() as bar:
            reason = self._loop(signals, bar)
        if self._state.step != trainer.progress.step:
            self._validate()
        self._write_status(reason)
        log.info("%s  step %d  elapsed %.0f s", reason, trainer.progress.step, self._elapsed_s())
        return TrainResult(
            self._run.folder, reason, trainer.progress.step, self._state.best_step, self._state.best_score
        )

    def _loop(self, signals: StopSignals, bar: "tqdm[Never]") -> str:
        for report in self._trainer.run():
            self._meter.add(report)
            bar.update()
            is_last = report.step == self._trainer.total_steps
            if is_last or report.step % self._config.training.log_every == 0:
                self._log(self._meter.read(), bar)
            if is_last or self._is_validation_due(report):
                self._validate()
            if signals.received is not None:
                self._stop(signals.received)
            patience = self._config.training.patience
            if patience and self._state.validations_without_gain >= patience:
                return "early stop"
            if self._time_limit_s is not None and time.monotonic() - self._started_at > self._time_limit_s:
                return "time limit"
        return "finished"

    def _is_validation_due(self, report: StepReport) -> bool:
        every = self._config.training.validate_every
        return report.step % every == 0 if every else report.is_end_of_epoch

    def _log(self, reading: Reading, bar: "tqdm[Never]") -> None:
        if not math.isfinite(reading.loss):
            self._write_status("diverged")
            raise DivergedError(
                f"step {reading.step}: the loss is {reading.loss}; the run keeps its last good checkpoint; "
                "lower training.peak_lr or raise training.warmup_steps"
            )
        self._run.append_metrics({"kind": "step", **asdict(reading), "elapsed_s": self._elapsed_s()})
        bar.set_postfix(loss=f"{reading.loss:.3f}", refresh=False)
        # A terminal has the bar; a file or a pipe gets lines.
        level = logging.INFO if bar.disable else logging.DEBUG
        log.log(level, "%s  elapsed %.0f s", reading, self._elapsed_s())

    def _validate(self) -> None:
        """Score the model, save a checkpoint, and remember whether it is the best."""
        self._meter.pause()
        validation = self._validator.validate(self._trainer.progress.step)
        best_by_bleu = self._config.training.best_by == "bleu"
        score = validation.bleu.score if best_by_bleu else -validation.nll
        is_best = self._state.best_score is None or score > self._state.best_score
        if is_best:
            self._state = replace(
                self._state, best_score=score, best_step=validation.step, validations_without_gain=0
            )
        else:
            waited = self._state.validations_without_gain + 1
            self._state = replace(self._state, validations_without_gain=waited)
        self._report(validation, is_best=is_best)
        self._save(is_best=is_best)
        self._write_status("running")
        self._meter.resume()

    def _report(self, validation: Validation, *, is_best: bool) -> None:
        elapsed = self._elapsed_s()
        record = {"kind": "validation", **validation.as_json(), "is_best": is_best, "elapsed_s": elapsed}
        self._run.append_metrics(record)
        mark = "  (best so far)" if is_best else ""
        log.info(
            "valid step %d  nll %.4f  %s  elapsed %.0f s%s",
            validation.step, validation.nll, validation.bleu, elapsed, mark,
        )  # fmt: skip
        for sample in validation.samples:
            log.info("  %s", sample)

    def _save(self, *, is_best: bool) -> None:
        progress = self._trainer.progress
        self._state = replace(
            self._state,
            step=progress.step,
            epoch=progress.epoch,
            update_of_epoch=progress.update_of_epoch,
            elapsed_s=self._elapsed_s(),
        )
        folder = self._run.folder / "checkpoints" / checkpoint_name(progress.step)
        save_checkpoint(folder, self._model, tensors=self._trainer.tensors(), state=self._state)
        if is_best:
            self._run.point("best", step=progress.step)
        self._run.point("last", step=progress.step)
        self._run.remove_unused_checkpoints()

    def _restore(self) -> None:
        folder = self._run.checkpoint_folder("last")
        self._state = load_state(folder)
        self._elapsed_before_s = self._state.elapsed_s
        load_weights(folder, self._model)
        progress = Progress(self._state.step, self._state.epoch, self._state.update_of_epoch)
        self._trainer.restore(progress, load_training_tensors(folder))
        log.info("resumed %s", folder)

    def _stop(self, signal_number: int) -> None:
        if self._state.step != self._trainer.progress.step:
            self._save(is_best=False)
        self._write_status("stopped")
        raise StoppedError(
            f"stopped at step {self._state.step}; the state is saved, --resume goes on from there",
            signal_number=signal_number,
        )

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

    @contextmanager
    def _progress_bar(self) -> "Iterator[tqdm[Never]]":
        with tqdm(
            total=self._trainer.total_steps,
            initial=self._trainer.progress.step,
            unit="step",
            disable=None,  # where stderr is no terminal
            file=sys.stderr,
            leave=False,
            dynamic_ncols=True,
        ) as bar:
            yield bar


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Copy everything that is logged, debug lines too, to the end of `path`."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    package = logging.getLogger("mt_cli")
    previous = package.level
    package.setLevel(logging.DEBUG)
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(previous)
        handler.close()
