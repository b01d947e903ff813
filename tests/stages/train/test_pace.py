"""The time left, against trainings whose updates and validations take known times."""

from collections.abc import Sequence

import pytest
import torch

from mt_cli.stages.train.pace import UPDATES_FOR_AN_ESTIMATE, VALIDATION_COST, WARM_UP, Pace
from mt_cli.training.trainer import StepReport

TOKENS = 100
NOTHING = torch.zeros(())


class Training:
    """Updates of 2 s, the first of 50, and validations of 7 s, on a clock that is moved by hand."""

    def __init__(
        self,
        *,
        total_steps: int,
        validation_steps: Sequence[int],
        begin: int = 0,
        known_s: float | None = None,
    ) -> None:
        self.now = 0.0
        self.step = begin
        self._validation_steps = validation_steps
        self.pace = Pace(
            total_steps=total_steps,
            validation_steps=validation_steps,
            validation_tokens=10 * TOKENS,
            validation_s=known_s,
            clock=lambda: self.now,
        )
        self._is_first = True

    def update(self, count: int) -> None:
        for _ in range(count):
            self.now += 50 if self._is_first else 2
            self._is_first = False
            self.step += 1
            self.pace.count(StepReport(self.step, 1, False, 1e-3, TOKENS, NOTHING, NOTHING, NOTHING, NOTHING))
            if self.step in self._validation_steps:
                with self.pace.validating():
                    self.now += 7


def test_time_left_counts_updates_and_validations() -> None:
    training = Training(total_steps=100, validation_steps=range(30, 101, 30))
    training.update(40)
    # 60 updates, and validations after 60, 90 and, as always, the last one.
    assert training.pace.left_s() == pytest.approx(60 * 2 + 3 * 7)


def test_last_update_that_is_due_anyway_is_validated_once() -> None:
    training = Training(total_steps=60, validation_steps=[30, 60])
    training.update(40)
    assert training.pace.left_s() == pytest.approx(20 * 2 + 7)


def test_first_validation_is_reckoned_from_its_tokens_until_one_was_timed() -> None:
    training = Training(total_steps=100, validation_steps=[50, 100])
    training.update(UPDATES_FOR_AN_ESTIMATE)
    assert training.pace.is_new
    # As many tokens as ten updates have.
    assert training.pace.left_s() == pytest.approx(80 * 2 + 2 * VALIDATION_COST * 10 * 2)


def test_resumed_training_knows_what_a_validation_takes() -> None:
    training = Training(total_steps=100, validation_steps=[50, 100], begin=40, known_s=5)
    training.update(UPDATES_FOR_AN_ESTIMATE - 11)
    assert training.pace.left_s() == pytest.approx(51 * 2 + 2 * 5)


def test_time_left_during_a_validation_counts_what_it_has_taken_so_far() -> None:
    training = Training(total_steps=100, validation_steps=[])
    training.update(20)
    with training.pace.validating():
        training.now += 4
        assert training.pace.left_s() == pytest.approx(80 * 2 + 4)
    assert training.pace.left_s() == pytest.approx(80 * 2 + 4)


def test_nothing_is_told_of_the_first_updates() -> None:
    training = Training(total_steps=100, validation_steps=[])
    training.update(WARM_UP)
    assert training.pace.left_s() is None


def test_nothing_is_left_at_the_end() -> None:
    training = Training(total_steps=2, validation_steps=[2])
    training.update(2)
    assert training.pace.left_s() == 0
