"""Means between log lines and between validations, against sums by hand."""

import pytest
import torch

from mt_cli.stages.train.meter import Meter
from mt_cli.training.trainer import StepReport


def report(step: int, *, tokens: int, loss: float) -> StepReport:
    return StepReport(
        step, 1, False, step / 1000, tokens, torch.tensor(loss), torch.tensor(loss - 1), torch.tensor(0.5)
    )


def test_reading_covers_what_came_since_the_last_one() -> None:
    meter = Meter()
    meter.add(report(1, tokens=100, loss=9.0))
    meter.read()
    for each in (report(2, tokens=10, loss=4.0), report(3, tokens=30, loss=2.0)):
        meter.add(each)
    reading = meter.read()
    assert (reading.step, reading.lr) == (3, 0.003)
    assert [reading.loss, reading.nll] == pytest.approx([2.5, 1.5])
    assert not meter.has_reports


def test_stretch_covers_every_update_since_the_last_validation_logged_or_not() -> None:
    meter = Meter()
    meter.add(report(1, tokens=50, loss=9.0))
    meter.end_stretch()
    meter.resume()
    meter.add(report(2, tokens=10, loss=6.0))
    meter.read()
    meter.add(report(3, tokens=30, loss=2.0))
    stretch = meter.end_stretch()
    assert stretch is not None
    assert (stretch.epoch, stretch.lr) == (1, 0.003)
    assert stretch.loss == pytest.approx(3.0)
    assert meter.has_reports  # the log line has yet to come


def test_clock_stands_still_while_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    meter = Meter()
    now += 2
    meter.add(report(1, tokens=100, loss=1.0))
    first = meter.end_stretch()
    now += 100  # a validation
    meter.resume()
    now += 8
    meter.add(report(2, tokens=100, loss=1.0))
    assert meter.read().tgt_tokens_per_s == pytest.approx(200 / 10)
    second = meter.end_stretch()
    assert [each and each.tgt_tokens_per_s for each in (first, second)] == pytest.approx([50, 100 / 8])


def test_no_stretch_ends_before_the_first_update() -> None:
    assert Meter().end_stretch() is None
