"""One stretch of training: updates, validations, checkpoints and limits, from a start or a resume
to an end.

Decides what follows from a score, a limit or a signal.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Never

import numpy as np
import torch
from torch import Tensor

from mt_cli.data.prepared import EncodedSplit, Prepared, Sentences
from mt_cli.errors import DataError, DivergedError, MtCliError, StoppedError
from mt_cli.evaluation.scoring import Score, score_bleu
from mt_cli.machine.device import Runtime
from mt_cli.machine.files import write_json
from mt_cli.machine.processes import StopSignals
from mt_cli.model.translation_model import TranslationModel
from mt_cli.runs.checkpoint import (
    CheckpointState,
    checkpoint_name,
    read_state,
    read_training_tensors,
    read_weights,
    save_checkpoint,
)
from mt_cli.runs.run import CHECKPOINTS, STATUS, Run
from mt_cli.training.distributed import World
from mt_cli.training.monitor import Meter, Monitor, Validation, after_training, before_training
from mt_cli.training.precision import HALVINGS
from mt_cli.training.track import tracking
from mt_cli.training.trainer import Progress, StepReport, Trainer, mean_nll
from mt_cli.translation.lines import forbidden_ids
from mt_cli.translation.searcher import Searcher
from mt_cli.translation.translator import OnProgress, Translator

log = logging.getLogger(__name__)

MOST_SKIPS = 10
"""Skipped updates in a row after which even a training that may skip them ends: it would not
recover.
"""

DIVERGED = 3.0
"""A loss that is so many times that of guessing comes from weights that have grown without bound."""

NUM_SAMPLES = 2
"""Translations that are shown after a validation."""


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
        started_at: float,
        time_limit_s: float | None,
        validates_at_limit: bool,
    ) -> None:
        """In a `world` of several processes, the first scores, saves and decides, and the others
        follow.

        The config is `run.config`. Weights and state come from the run's newest usable checkpoint,
        if any.
        """
        self._run, self._runtime, self._world = run, runtime, world
        self._started_at, self._limit_s = (
            started_at,
            math.inf if time_limit_s is None else time_limit_s,
        )
        self._validates_at_limit = validates_at_limit
        seed, training = run.config.runtime.seed, run.config.training
        self.model = run.build_model(seed=seed).to(runtime.device)
        split = prepared.split("train")
        self._trainer = Trainer(
            self.model, split, training, runtime=runtime, seed=seed, world=world
        )
        src_size, tgt_size = run.tokenizers.src.vocab_size, run.tokenizers.tgt.vocab_size
        self._num_train = len(split)
        self._warnings = before_training(
            run.config,
            num_pairs=len(split),
            num_tokens=len(split.src.ids) + len(split.tgt.ids),
            vocab_size=src_size if run.tokenizers.joint else src_size + tgt_size,
            total_steps=self._trainer.total_steps,
            num_processes=world.size,
        )
        self._prepared = prepared
        self._judged: Validation | None = None
        self._state = CheckpointState(step=0, epoch=0, update_of_epoch=0)
        # Without a checkpoint, the score of the start is made anew too.
        self._last_kept, restored = -1, {}
        if run.checkpoints:
            restored = self._restore()
            self._last_kept = self._state.step
        self._elapsed_before_s = self._state.elapsed_s
        if world.is_first:
            run.forget_metrics_after(self._last_kept)
            if self._state.step < self._trainer.total_steps and not self._is_out_of_patience():
                run.note_resumption(environment, after_step=self._state.step)
        self._monitor = Monitor(run, self._trainer, elapsed_s=self._elapsed_s)
        if restored:
            self._monitor.meter.restore(restored)

    @cached_property
    def _validator(self) -> "Validator":
        return Validator(self.model, self._run, self._prepared, runtime=self._runtime)

    def run(self, signals: StopSignals, *, config_path: Path) -> None:
        """Train until the end, a limit, or one of `signals`; `config_path` is where the config was
        read.
        """
        if (
            signals.received is not None and self._world.size == 1
        ):  # others have begun their first update
            self._stop(signals.received)
        self._monitor.tell_opening(
            config_path,
            self._runtime,
            num_processes=self._world.size,
            num_train=self._num_train,
            num_val=len(self._validator.sources),
            bleu_signature=self._validator.bleu_signature,
        )
        if not self._trainer.progress.step:
            for warning in self._warnings:
                log.warning("%s", warning)
        if self._trainer.progress.step >= self._trainer.total_steps:
            log.info(
                "nothing is left to train; to train longer, raise training.max_epochs or max_steps"
            )
        self._write_status("running")
        try:
            with (
                tracking(self._run, after_step=self._last_kept) as tracker,
                self._monitor.watching(tracker),
            ):
                reason = self.loop(signals)
        except (StoppedError, DivergedError):
            raise
        except BaseException:
            with suppress(MtCliError, OSError):  # the error that came first is the one to tell
                self._write_status("failed")
            raise
        self._write_status(reason)
        if self._judged is not None and reason != "time_limit" and self._validator.has_bleu:
            bleu, hyps = self._judged.bleu.score, self._judged.hyps
            if failure := after_training(bleu, hyps=hyps, sources=self._validator.sources):
                log.warning("%s", failure)
        step = self._trainer.progress.step
        log.info("%s  step %d  elapsed %.0f s", reason, step, self._elapsed_s())
        self._monitor.tell_end()

    def loop(self, signals: StopSignals) -> str:
        """Make the updates that are left; gives the reason to end, which the first process alone
        knows.
        """
        if (
            self._run.init_from is not None
        ):  # in all processes alike, whatever scores they have found saved
            has_score = self._state.best_step is not None
            self._world.after_first((lambda: None) if has_score else self._validate, lambda: None)
        if self._is_out_of_patience():
            return "early_stop"
        self._monitor.meter.resume()
        for report in self._trainer.run():
            reason = None
            if self._is_due(report) and not self._trainer.are_alike():
                log.warning(
                    "the processes' weights have drifted apart; all go on with those of the first"
                )
                self._trainer.share()
            if self._world.is_first:
                try:
                    reason = self._after_update(report, signals)
                except BaseException:
                    self._world.announce_end()
                    raise
            if not self._world.agree(goes_on=reason is None):
                return reason or ""
        return "finished"

    def _after_update(self, report: StepReport, signals: StopSignals) -> str | None:
        """Log, score and save what is due after an update; gives the reason to end, if there is
        one.
        """
        self._monitor.count(report, limit_left_s=self._limit_left_s())
        training = self._run.config.training
        is_last = report.step == self._trainer.total_steps
        if is_last or report.step % training.log_every == 0:
            self._check_finite(weights_too=False)
            self._monitor.tell_step()
        if self._is_due(report):
            self._validate()
        if signals.received is not None:
            self._stop(signals.received)
        if self._is_out_of_patience():
            return "early_stop"
        if not is_last and self._limit_left_s() < 0:
            if self._state.step != self._trainer.progress.step:
                if self._validates_at_limit:
                    self._validate(is_extra=True)
                else:
                    self._save()
            return "time_limit"
        return None

    def _is_due(self, report: StepReport) -> bool:
        """Whether a validation follows this update."""
        every = self._run.config.training.validate_every
        is_last = report.step == self._trainer.total_steps
        return is_last or (report.step % every == 0 if every else report.is_end_of_epoch)

    def _is_out_of_patience(self) -> bool:
        return 0 < self._run.config.training.patience <= self._state.validations_without_gain

    def _validate(self, *, is_extra: bool = False) -> None:
        """Score the model, save a checkpoint, and remember whether it is the best.

        One that `is_extra`, which an uninterrupted training would not make, is not held against its
        patience, but may be the best.
        """
        self._check_finite()
        self._monitor.meter.pause()
        began_at = time.monotonic()
        with self._monitor.validating(len(self._validator.sources)) as update:
            validation = self._validator.validate(self._trainer.progress.step, on_progress=update)
        validation_s = time.monotonic() - began_at
        guessing = math.log(self._run.tokenizers.tgt.vocab_size)
        if not validation.nll <= DIVERGED * guessing:  # nor is it NaN
            self._give_up(
                f"the loss on val is {validation.nll:.1f}, and guessing has {guessing:.1f}"
            )
        is_best = self._judge(validation, is_extra=is_extra)
        self._monitor.tell_validation(validation, is_best=is_best, validation_s=validation_s)
        self._save()
        self._write_status("running")
        self._monitor.meter.resume()

    def _judge(self, validation: Validation, *, is_extra: bool) -> bool:
        """Whether the model is now the best; what follows from it is remembered.

        Of equal BLEU, as of a young model whose BLEU is 0, the lower loss is better.
        """
        score = validation.bleu.score if self._validator.best_by == "bleu" else -validation.nll
        best_score = self._state.best_score
        best_nll = self._state.best_nll
        rank = (score, -validation.nll)
        is_best = best_score is None or rank > (
            best_score,
            -math.inf if best_nll is None else -best_nll,
        )
        if is_best or self._judged is None:
            self._judged = validation
        if is_best:
            self._state = replace(
                self._state,
                best_score=score,
                best_nll=validation.nll,
                best_step=validation.step,
                validations_without_gain=0,
            )
        elif not is_extra:
            waited = self._state.validations_without_gain + 1
            self._state = replace(self._state, validations_without_gain=waited)
        return is_best

    # Checkpoints

    def _save(self) -> None:
        self._check_finite()
        self._state = replace(
            self._state, **asdict(self._trainer.progress), elapsed_s=self._elapsed_s()
        )
        name = checkpoint_name(self._state.step)
        save_checkpoint(
            self._run.folder / CHECKPOINTS / name,
            dict(self.model.named_parameters()),
            tensors={**self._trainer.tensors(), **self._monitor.meter.tensors()},
            state=self._state,
        )
        self._point_to_checkpoints(last=name)
        self._run.remove_unused_checkpoints(last=name)

    def _point_to_checkpoints(self, *, last: str) -> None:
        if self._state.best_step is not None:
            self._run.point("best", to=checkpoint_name(self._state.best_step))
        self._run.point("last", to=last)

    def _restore(self) -> dict[str, Tensor]:
        """Fill the model and the trainer from the newest checkpoint that can be used; gives its
        tensors.

        Raises:
            DataError: none is whole, with finite weights.
        """
        run, failures = self._run, list[str]()
        for name in reversed(run.checkpoints):
            folder = run.folder / CHECKPOINTS / name
            try:
                state = read_state(folder)
                tensors = read_training_tensors(folder, run.parameter_shapes)
                self.model.load_state_dict(read_weights(folder, run.parameter_shapes), strict=False)
                self._trainer.restore(
                    Progress(state.step, state.epoch, state.update_of_epoch), tensors
                )
                Meter().restore(tensors)
            except DataError as error:
                failures.append(str(error))
                continue
            except (KeyError, ValueError) as error:
                lacks = "its training state lacks " if isinstance(error, KeyError) else ""
                failures.append(f"{folder}: {lacks}{error}")
                continue
            for failure in failures:
                log.warning("%s", failure)
            if failures:
                log.warning(
                    "training goes on from %s, the newest checkpoint that can be used", name
                )
            best = None if state.best_step is None else checkpoint_name(state.best_step)
            is_gone = best not in run.checkpoints
            self._state = (
                replace(state, best_score=None, best_nll=None, best_step=None) if is_gone else state
            )
            if self._world.is_first:  # a kill may have kept this from being done
                self._point_to_checkpoints(last=name)
                if not failures:
                    run.remove_unused_checkpoints(last=name)
            if state.step > self._trainer.total_steps:
                total = self._trainer.total_steps
                log.warning("the run is at step %d, past the %d asked for", state.step, total)
            return tensors
        raise DataError(f"{failures[0]}; no other checkpoint can be used: train anew")

    # What ends a training

    def _check_finite(self, *, weights_too: bool = True) -> None:
        """Stop if updates since the last log line were not finite, or weights or optimiser are not.

        Waits for the device.
        """
        since_log, in_a_row = self._monitor.meter.skips()
        is_fp16 = (
            self._runtime.precision == "fp16"
        )  # whose loss has a scale, which may have to be halved often
        if in_a_row >= (MOST_SKIPS + HALVINGS if is_fp16 else MOST_SKIPS):
            self._give_up(f"the loss or the gradient is not finite, {in_a_row} times in a row")
        if since_log and not is_fp16 and self._run.config.training.on_nonfinite == "stop":
            self._give_up("the loss or the gradient is not finite")
        tensors = [*self.model.parameters(), *self._trainer.tensors().values()]
        if (
            weights_too and not torch.stack([each.isfinite().all() for each in tensors]).all()
        ):  # waits once
            self._give_up("the weights are not finite any more")

    def _give_up(self, found: str) -> Never:
        self._write_status("diverged")
        kept = (
            "the last good checkpoint is kept"
            if self._run.checkpoints
            else "there is no checkpoint yet"
        )
        raise DivergedError(
            f"step {self._trainer.progress.step}: {found}; {kept}; lower training.peak_lr or raise "
            "training.warmup_steps"
        )

    def _stop(self, signal_number: int) -> Never:
        step = self._trainer.progress.step
        if self._state.step != step:
            self._save()
        self._write_status("stopped")
        message = "stopped before the first update; --resume starts with it"
        if step:
            message = f"stopped at step {step}; the state is saved, --resume goes on from there"
        raise StoppedError(message, signal_number=signal_number)

    def _write_status(self, state: str) -> None:
        """Write status.json: where training stands, which is also what `train --json` prints in the
        end.
        """
        write_json(
            self._run.folder / STATUS,
            {
                "state": state,
                "step": self._trainer.progress.step,
                "total_steps": self._trainer.total_steps,
                "epoch": self._trainer.progress.epoch,
                "best_step": self._state.best_step,
                "best_score": self._state.best_score,
                "best_by": self._validator.best_by,
                "elapsed_s": round(self._elapsed_s(), 1),
            },
        )

    def _elapsed_s(self) -> float:
        return self._elapsed_before_s + time.monotonic() - self._started_at

    def _limit_left_s(self) -> float:
        """Seconds that the time limit leaves."""
        return self._limit_s - (time.monotonic() - self._started_at)


class Validator:
    """Scores a model in training on `val`: loss, and BLEU through the Translator that users get."""

    def __init__(
        self,
        model: TranslationModel,
        run: Run,
        prepared: Prepared,
        *,
        runtime: Runtime,
    ) -> None:
        self._model = model
        self._config = run.config
        self._runtime = replace(runtime, precision=run.config.decoding.precision)
        self._split = _fitting(prepared.split("val"), longest=model.longest_sentence)
        self.sources = prepared.lines("val", "src")
        self._refs = prepared.lines("val", "tgt")
        best = self._bleu(self._refs)
        self.bleu_signature = best.signature
        self.has_bleu = best.score > 0
        """Whether BLEU can tell translations apart: not where references have fewer than four
        words.
        """
        self.best_by = run.config.training.best_by if self.has_bleu else "loss"
        """What the best checkpoint is judged by."""
        if self.best_by != run.config.training.best_by:
            log.warning(
                "the references of val are too short for BLEU, which gives 0 even to the "
                "references themselves; the best checkpoint is judged by the loss"
            )
        # The same weights, in the same memory, on the backend that decodes with a cache.
        twin = run.build_model(backend="scratch").to(runtime.device)
        twin.load_state_dict(model.state_dict(), assign=True)
        # Quiet: `_fitting` has warned of long pairs, and each validation would warn of every one
        # again.
        forbidden = forbidden_ids(run.tokenizers, run.config.decoding)
        searcher = Searcher(
            twin,
            run.config.decoding,
            runtime=self._runtime,
            forbidden_ids=forbidden,
            lengths=run.lengths,
        )
        self._translator = Translator(searcher, run.tokenizers, quiet=True)

    def validate(self, step: int, *, on_progress: OnProgress | None = None) -> Validation:
        """Score the model as it is now, after `step` updates."""
        nll = mean_nll(
            self._model,
            self._split,
            tokens_per_batch=self._config.training.tokens_per_batch,
            runtime=self._runtime,
        )
        hyps = self._translator.translate(self.sources, on_progress=on_progress)
        bleu = self._bleu(hyps)
        spread = range(0, len(hyps), max(1, len(hyps) // NUM_SAMPLES))[:NUM_SAMPLES]
        samples = [(self.sources[i], hyps[i], self._refs[i]) for i in spread]
        return Validation(step, nll, bleu, hyps, samples)

    def _bleu(self, hyps: Sequence[str]) -> Score:
        data = self._config.data
        return score_bleu(hyps, self._refs, lang=data.tgt_lang, lowercase=data.lowercase)


def _fitting(split: EncodedSplit, *, longest: int) -> EncodedSplit:
    """`split` with each sentence cut to its first `longest` ids; no pair is left out."""
    num_cut = int((np.maximum(split.src.lengths, split.tgt.lengths) > longest).sum())
    if num_cut == 0:
        return split
    log.warning(
        "%d of %d validation pairs are longer than the model's %d tokens; the loss counts no "
        "more of them",
        num_cut, len(split), longest,
    )  # fmt: skip
    src, tgt = (
        Sentences.of([side[i][:longest].tolist() for i in range(len(side))])
        for side in (split.src, split.tgt)
    )
    return EncodedSplit(src, tgt)
