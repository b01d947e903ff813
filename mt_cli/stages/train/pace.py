"""How long training has still to go.

Knows when updates and validations ended; nothing of what they did.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mt_cli.artefacts.run import Run
from mt_cli.training.trainer import StepReport, Trainer

WARM_UP = 3
"""First updates of a session, which are slower and not counted: kernels are chosen and memory is taken."""
UPDATES_FOR_AN_ESTIMATE = 20
VALIDATION_COST = 2.0
"""Time of a validation in that of training on its pairs, until one has been timed (measured: 1.2 to 3)."""


class Pace:
    """The seconds that updates and validations take, and what follows for those that are left."""

    def __init__(
        self,
        *,
        total_steps: int,
        validation_steps: Sequence[int],
        validation_tokens: int,
        validation_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`validation_steps` ascend; after the last update comes a validation in any case.

        `validation_tokens` counts the target tokens of the validation split, and `validation_s` is what a
        validation of an earlier session took.
        """
        self._total_steps = total_steps
        self._validation_steps = validation_steps
        self._validation_tokens = validation_tokens
        self._validation_s = validation_s
        self._clock = clock
        self._step = 0
        self._updates, self._tokens = 0, 0
        self._began_at, self._apart_s = clock(), 0.0
        self._validating_since: float | None = None

    @classmethod
    def of(cls, run: Run, trainer: Trainer, *, validate_every: int, validation_tokens: int) -> "Pace":
        """The pace of `run`, which `trainer` is about to train; `validate_every` 0 is once an epoch."""
        every, total = validate_every, trainer.total_steps
        timed = [each.number("validation_s") for each in run.metrics() if "validation_s" in each.content]
        last = timed[-1] if timed else None
        return cls(
            total_steps=total,
            validation_steps=range(every, total + 1, every) if every else trainer.epoch_ends,
            validation_tokens=validation_tokens,
            validation_s=last,
        )

    def count(self, report: StepReport) -> None:
        """Note that an update has ended."""
        self._step = report.step
        self._updates += 1
        self._tokens += report.tgt_tokens
        if self._updates == WARM_UP:
            self._began_at, self._apart_s, self._tokens = self._clock(), 0.0, 0

    @property
    def is_new(self) -> bool:
        """Whether now is the first time at which an estimate can be relied on."""
        return self._updates == UPDATES_FOR_AN_ESTIMATE

    @contextmanager
    def validating(self) -> Iterator[None]:
        """Time a validation, with the checkpoint that follows from it."""
        self._validating_since = began_at = self._clock()
        yield
        self._validating_since = None
        self._validation_s = self._clock() - began_at
        self._apart_s += self._validation_s

    def left_s(self) -> float | None:
        """Seconds to the end, validations included; None before enough updates to tell.

        On a GPU, wait for the last update first.
        """
        if self._step >= self._total_steps:
            return 0.0
        counted = self._updates - WARM_UP
        if counted < 1:
            return None
        now, since = self._clock(), self._validating_since
        trained_s = (now if since is None else since) - self._began_at - self._apart_s
        validation_s = self._validation_s if since is None else now - since
        if validation_s is None:
            validation_s = VALIDATION_COST * self._validation_tokens * trained_s / self._tokens
        updates_left = self._total_steps - self._step
        return updates_left * trained_s / counted + self._validations_left() * validation_s

    def _validations_left(self) -> int:
        steps = self._validation_steps
        ends_with_one = bool(steps) and steps[-1] == self._total_steps
        return len(steps) - bisect_right(steps, self._step) + (not ends_with_one)
