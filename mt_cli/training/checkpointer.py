"""`Checkpointer`: saves a training, and goes on with the newest checkpoint that can be used."""

import logging
from dataclasses import replace

from mt_cli.errors import DataError
from mt_cli.runs.checkpoint import (
    CheckpointState,
    checkpoint_name,
    read_state,
    read_training_tensors,
    read_weights,
    save_checkpoint,
)
from mt_cli.runs.run import CHECKPOINTS, Run
from mt_cli.training.meter import Meter
from mt_cli.training.trainer import Trainer

log = logging.getLogger(__name__)


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
