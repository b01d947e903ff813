"""Means between log lines and between validations, against sums by hand."""

import pytest
import torch

from mt_cli.training.monitor import Meter
from mt_cli.training.trainer import StepReport


def report(step: int, *, tokens: int, loss: float) -> StepReport:
    of_loss = torch.tensor(loss)
    return StepReport(
        step,
        1,
        False,
        step / 1000,
        tokens,
        of_loss,
        of_loss - 1,
        torch.tensor(0.5),
        torch.zeros(()),
    )


def test_what_goes_before_the_first_update_is_no_time_of_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("mt_cli.training.monitor.time.perf_counter", lambda: now)
    meter = Meter()
    now = 7.0  # data, models and trackers are made ready
    meter.resume()
    for step in range(1, 5):
        now += 0.5
        meter.add(report(step, tokens=100, loss=2.0))
    reading = meter.read()
    assert reading is not None
    assert reading.tgt_tokens_per_s == 200
    assert meter.seconds_per_update == 0.5


def test_reading_is_the_mean_over_the_tokens_that_came_since_the_last_one() -> None:
    meter = Meter()
    meter.resume()
    meter.add(report(1, tokens=100, loss=9.0))
    meter.read()
    for each in (report(2, tokens=10, loss=4.0), report(3, tokens=30, loss=2.0)):
        meter.add(each)
    reading = meter.read()
    assert reading is not None
    assert (reading.step, reading.lr) == (3, 0.003)
    assert [reading.loss, reading.nll] == pytest.approx([2.5, 1.5])
    assert meter.read() is None
