"""`StopSignals`: which signals are remembered, and which obeyed."""

import signal
from collections.abc import Iterator

import pytest

from mt_cli.machine import process as module
from mt_cli.machine.process import StopSignals


@pytest.fixture
def obeyed() -> Iterator[list[int]]:
    """The signals that are answered in the way of before the block."""
    seen: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: seen.append(number))
        for number in StopSignals.SIGNALS
    }
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", StopSignals.SIGNALS)
def test_a_signal_is_remembered_and_not_obeyed(obeyed: list[int], number: signal.Signals) -> None:
    with StopSignals() as signals:
        assert signals.received is None
        signal.raise_signal(number)
        assert signals.received == number
    assert obeyed == []


def test_signals_soon_after_the_first_mean_the_same(
    obeyed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAME_S", float("inf"))
    with StopSignals() as signals:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
            signal.raise_signal(number)
    assert (signals.received, obeyed) == (signal.SIGHUP, [])


def test_a_later_one_is_obeyed(obeyed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
        monkeypatch.setattr(module, "SAME_S", -1.0)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGHUP)
    assert (signals.received, obeyed) == (signal.SIGTERM, [signal.SIGINT, signal.SIGHUP])


def test_what_the_process_ignores_stays_ignored(obeyed: list[int]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGHUP)
    assert (signals.received, obeyed) == (None, [])


def test_what_the_system_repeats_every_second_is_obeyed_never(
    obeyed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAME_S", -1.0)
    with StopSignals() as signals:
        for _ in range(3):
            signal.raise_signal(signal.SIGXCPU)
    assert (signals.received, obeyed) == (signal.SIGXCPU, [])
