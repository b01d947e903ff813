"""Learning rates by hand and by the papers' formulas."""

from typing import get_args

import pytest

from mt_cli.config.schema import Schedule, TrainingConfig
from mt_cli.training.optimizer import learning_rate

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def rate(
    step: int,
    schedule: Schedule,
    *,
    peak_lr: float = 1.0,
    warmup_steps: int = 10,
    total_steps: int = 29,
) -> float:
    return learning_rate(
        step, schedule=schedule, peak_lr=peak_lr, warmup_steps=warmup_steps, total_steps=total_steps
    )


@every_schedule
@pytest.mark.parametrize(("step", "expected"), [(1, 0.1), (5, 0.5), (9, 0.9), (10, 1.0)])
def test_warm_up_rises_linearly_to_the_peak(schedule: Schedule, step: int, expected: float) -> None:
    assert rate(step, schedule) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        ("inverse_sqrt", 40, 0.5),
        ("inverse_sqrt", 1000, 0.1),
        ("cosine", 15, 0.8535533906),  # a quarter of the way: (1 + cos 45°) / 2
        ("cosine", 20, 0.5),
        ("cosine", 25, 0.1464466094),
        ("cosine", 30, 0.0),
        ("constant", 11, 1.0),
        ("constant", 29, 1.0),
    ],
)
def test_hand_worked_rates_after_the_warm_up(
    schedule: Schedule, step: int, expected: float
) -> None:
    assert rate(step, schedule) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("schedule", "expected"), [("inverse_sqrt", 1.0), ("cosine", 1.0), ("constant", 1.0)]
)
def test_without_warm_up_training_starts_near_the_peak(schedule: Schedule, expected: float) -> None:
    assert rate(1, schedule, warmup_steps=0, total_steps=1000) == pytest.approx(expected, rel=1e-5)


@every_schedule
def test_warm_up_longer_than_training_only_rises(schedule: Schedule) -> None:
    assert rate(29, schedule, warmup_steps=100) == pytest.approx(0.29)


def test_warmup_is_a_number_of_updates_or_a_share_of_them() -> None:
    assert TrainingConfig(warmup_steps=400).num_warmup_steps(36) == 400
    assert TrainingConfig(warmup_steps=0.25).num_warmup_steps(36) == 9
    assert TrainingConfig().num_warmup_steps(2000) == 200
    assert TrainingConfig(warmup_steps=1).num_warmup_steps(2000) == 1
