"""Means between log lines and between validations, against sums by hand."""

import math
from dataclasses import replace

import pytest
import torch

from mt_cli.stages.train.meter import Meter, Reading, Skips
from mt_cli.training.trainer import StepReport


def report(step: int, *, tokens: int = 10, loss: float = 1.0, norm: float = 0.5) -> StepReport:
    return StepReport(
        step,
        1,
        False,
        step / 1000,
        tokens,
        torch.tensor(loss),
        torch.tensor(loss - 1),
        torch.tensor(norm),
        torch.tensor(float(not math.isfinite(loss + norm))),
    )


def reading_of(meter: Meter) -> Reading:
    reading = meter.read()
    assert reading is not None
    return reading


def after(*reports: StepReport) -> Meter:
    meter = Meter()
    for each in reports:
        meter.add(each)
    return meter


def test_reading_covers_what_came_since_the_last_one() -> None:
    meter = Meter()
    meter.add(report(1, tokens=100, loss=9.0))
    meter.read()
    for each in (report(2, tokens=10, loss=4.0), report(3, tokens=30, loss=2.0)):
        meter.add(each)
    reading = reading_of(meter)
    assert (reading.step, reading.lr) == (3, 0.003)
    assert [reading.loss, reading.nll] == pytest.approx([2.5, 1.5])
    assert meter.read() is None


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
    assert reading_of(meter).loss == pytest.approx(2.0)  # the log line was yet to come


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
    assert reading_of(meter).tgt_tokens_per_s == pytest.approx(200 / 10)
    second = meter.end_stretch()
    assert [each and each.tgt_tokens_per_s for each in (first, second)] == pytest.approx([50, 100 / 8])


def test_updates_are_added_without_a_look_at_their_values() -> None:
    value = torch.empty((), device="meta")
    meter = after(*(StepReport(step, 1, False, 0.1, 10, value, value, value, value) for step in (1, 2)))
    with pytest.raises(NotImplementedError, match="meta"):  # such tensors have no values to read
        meter.read()


def test_no_stretch_ends_before_the_first_update() -> None:
    assert Meter().end_stretch() is None


def test_saving_while_the_clock_stands_still_counts_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    meter = after(report(1, tokens=100))
    now += 2
    meter.pause()
    now += 100
    meter.tensors()
    meter.resume()
    assert reading_of(meter).tgt_tokens_per_s == pytest.approx(50)


# Updates that were skipped


def test_skipped_updates_count_for_nothing_but_their_number() -> None:
    meter = after(
        report(1, tokens=10, loss=4.0, norm=0.7),
        report(2, tokens=99, loss=math.nan),
        report(3, norm=math.inf),
    )
    assert meter.skips() == Skips(since_log=2, in_a_row=2)
    reading = reading_of(meter)
    assert (reading.loss, reading.nll) == (4.0, 3.0)
    assert (reading.step, reading.skipped) == (3, 2)
    assert reading.grad_norm == pytest.approx(0.7)
    assert str(reading).endswith("  skipped 2")


def test_skips_are_counted_on_and_a_good_update_ends_the_row() -> None:
    meter = after(report(1), report(2, loss=math.nan))
    meter.read()
    meter.add(report(3))
    assert meter.skips() == Skips(since_log=0, in_a_row=0)
    assert reading_of(meter).skipped == 1


def test_nothing_is_read_before_an_update_counts() -> None:
    meter = after(report(1, loss=math.nan))
    assert meter.read() is None
    assert meter.end_stretch() is None
    meter.add(report(2, loss=3.0))
    assert (reading_of(meter).loss, reading_of(after(report(1), report(2))).skipped) == (3.0, 0)


# Going on


def test_restored_meter_reads_what_an_uninterrupted_one_would() -> None:
    reports = [
        report(1, tokens=3, loss=0.1),
        report(2, tokens=7, loss=math.nan),
        report(3, tokens=11, loss=0.3),
        report(4, tokens=13, loss=0.7),
    ]
    whole, restored = after(*reports), Meter()
    restored.restore(after(*reports[:3]).tensors())
    restored.add(reports[3])
    assert restored.skips() == whole.skips()
    assert replace(reading_of(restored), tgt_tokens_per_s=0) == replace(reading_of(whole), tgt_tokens_per_s=0)
    one, other = (meter.end_stretch() for meter in (whole, restored))
    assert one is not None
    assert other is not None
    assert (other.epoch, other.loss, other.lr) == (one.epoch, one.loss, one.lr)


def test_state_of_an_older_version_leaves_the_meter_empty() -> None:
    meter = Meter()
    meter.restore({"output.weight:step": torch.ones(())})
    assert meter.read() is None
