"""Learning-rate schedules."""

import math
from typing import assert_never

from mt_cli.config.schema import Schedule


def learning_rate(
    step: int, *, schedule: Schedule, peak_lr: float, warmup_steps: int, total_steps: int
) -> float:
    """Rate at update `step` of `total_steps`: a linear rise to `peak_lr`, then `schedule`.

    `inverse_sqrt` falls with 1/sqrt(step) ("Noam", Vaswani et al. 2017, 5.3); `cosine` is half a
    cosine that reaches zero after the last update (Loshchilov and Hutter 2017).
    """
    if step <= warmup_steps:
        return peak_lr * step / warmup_steps
    match schedule:
        case "constant":
            return peak_lr
        case "inverse_sqrt":
            return peak_lr * math.sqrt(max(1, warmup_steps) / step)
        case "cosine":
            done = (step - warmup_steps) / max(1, total_steps + 1 - warmup_steps)
            return peak_lr * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    assert_never(schedule)
