"""Divergence: how it is found in updates and in weights, and how it is told.

Knows meters and tensors; stops nothing itself.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from mt_cli.config import TrainingConfig
from mt_cli.errors import DivergedError
from mt_cli.stages.train.meter import Meter

MOST_SKIPS = 10
"""Skipped updates in a row after which even a training that may skip them ends: it would not recover."""


def found_in_updates(meter: Meter, config: TrainingConfig) -> str | None:
    """What is wrong with the updates since the last log line, if anything; waits for the device."""
    skips = meter.skips()
    if skips.in_a_row >= MOST_SKIPS:
        return f"the loss or the gradient is not finite, {skips.in_a_row} times in a row"
    if skips.since_log and config.on_nonfinite == "stop":
        return "the loss or the gradient is not finite"
    return None


def found_in_weights(tensors: Iterable[Tensor]) -> str | None:
    """What is wrong with the weights and the optimiser's state, if anything; waits for the device."""
    return None if all_finite(tensors) else "the weights are not finite any more"


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether none of `tensors` holds NaN or infinity; waits for their device, once."""
    verdicts = [torch.isfinite(tensor).all() for tensor in tensors]
    return not verdicts or bool(torch.stack(verdicts).all())


def diverged(found: str, *, step: int, has_checkpoint: bool) -> DivergedError:
    """The error to raise once `found` is wrong after update `step`."""
    kept = "the last good checkpoint is kept" if has_checkpoint else "there is no checkpoint yet"
    return DivergedError(
        f"step {step}: {found}; {kept}; lower training.peak_lr or raise training.warmup_steps"
    )
