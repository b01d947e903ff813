"""Going on from a checkpoint: from the last one, or where that is damaged, from the newest that is whole.

Knows checkpoints and what they fill; decides nothing of how training goes on.
"""

import logging
from dataclasses import replace
from pathlib import Path

from mt_cli.artefacts.checkpoint import (
    CheckpointState,
    checkpoint_name,
    load_state,
    load_training_tensors,
    load_weights,
    shapes_of,
)
from mt_cli.artefacts.run import Run
from mt_cli.errors import DataError
from mt_cli.stages.train.meter import Meter
from mt_cli.training.trainer import Progress, Trainer

log = logging.getLogger(__name__)


def restore(run: Run, trainer: Trainer, meter: Meter) -> CheckpointState:
    """Fill the model, `trainer` and `meter` from the run's last checkpoint, or the newest usable one.

    Raises:
        DataError: none is whole, with finite weights.
    """
    last = run.pointer("last")
    others = [name for name in reversed(run.checkpoints) if name != last]
    failures: list[DataError] = []
    for name in [*([last] if last else []), *others]:
        try:
            state = _load(run.folder / "checkpoints" / name, trainer, meter)
        except DataError as error:
            failures.append(error)
            continue
        for failure in failures:
            log.warning("%s", failure)
        if failures:
            log.warning("training goes on from %s, the newest checkpoint that can be used", name)
        return _with_its_best(state, run)
    raise DataError(f"{failures[0]}; no other checkpoint can be used: train anew") from failures[0]


def finish_saving(run: Run, state: CheckpointState) -> None:
    """Do what a kill may have kept from being done after the checkpoint of `state` was written.

    If that is not the last one, nothing is done: others may be needed yet.
    """
    if run.pointer("last") == checkpoint_name(state.step):
        run.point("last", step=state.step)
        run.remove_unused_checkpoints(last=state.step)


def _load(folder: Path, trainer: Trainer, meter: Meter) -> CheckpointState:
    """Fill the model, `trainer` and `meter` from the checkpoint in `folder`."""
    state = load_state(folder)
    tensors = load_training_tensors(folder, shapes_of(trainer.model))
    load_weights(folder, trainer.model)
    try:
        trainer.restore(Progress(state.step, state.epoch, state.update_of_epoch), tensors)
    except KeyError as error:
        raise DataError(f"{folder}: its training state lacks {error}") from error
    meter.restore(tensors)
    log.debug("resumed %s", folder)
    return state


def _with_its_best(state: CheckpointState, run: Run) -> CheckpointState:
    """`state`, with its best checkpoint pointed to; if that is not there any more, without a best score."""
    if state.best_step is None:
        return state
    best = checkpoint_name(state.best_step)
    if best not in run.checkpoints:
        return replace(state, best_score=None, best_step=None)
    if best != run.pointer("best"):  # a kill came before the pointer was written
        run.point("best", step=state.best_step)
    return state
