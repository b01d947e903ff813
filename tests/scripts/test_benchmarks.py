"""The benches' tables by hand-worked cases, and contenders whose process ends."""

import os
from collections.abc import Callable, Sequence
from multiprocessing import Pipe

import pytest
from benchmarks import decode, train
from benchmarks.contenders import Contender, left_out_if_ended, start

ROUNDS = [9.0, 2.0, 4.0]
"""Seconds, the first of which warms up."""


def contender(seconds: list[float]) -> "Contender[int, int]":
    return Contender(Pipe()[0], ready_s=1.0, seconds=seconds, peak_mb=100.0)


def answering(task: int) -> int:
    """Twice the task; at 0 its process ends as if it had been killed."""
    if task == 0:
        os._exit(1)
    return 2 * task


def build() -> Callable[[int], int]:
    return answering


def test_contender_that_ends_is_left_out_by_name_and_the_bench_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running: Contender[int, int] = start(build)
    assert running.ask(4) == 8
    with left_out_if_ended("an engine"):
        running.ask(0)
    with left_out_if_ended("an engine"):
        running.ask(1)
    assert capsys.readouterr().err == "left out: an engine: its process has ended, see above\n" * 2
    assert len(running.seconds) == 1


def entry(engine: decode.Engine, *, batch: int, seconds: list[float]) -> decode.Entry:
    row = decode.Row(engine, "fp32", "greedy", 1, batch)
    of_lines: Contender[Sequence[str], list[str]] = Contender(Pipe()[0], 1.0, seconds, 100.0)
    return decode.Entry(row, of_lines, lines=["ein Hund", "eine Katze"], texts=["a dog", "a cat"])


@pytest.mark.parametrize(("device", "memory"), [("cpu", "100"), ("cuda", "–")])
def test_table_of_decoding_speeds(device: str, memory: str) -> None:
    entries = [
        entry("classic", batch=1, seconds=ROUNDS),
        entry("classic", batch=128, seconds=[9.0, 1.0]),
        entry("CTranslate2", batch=0, seconds=[9.0, 0.25]),
    ]
    table = decode.table(
        entries, ["a dog", "a cat"], lowercase=False, count=lambda texts: 3 * len(texts), device=device
    )
    assert table.splitlines()[2:] == [
        "| classic | fp32 | greedy | 1 | 0.7 | 2 | 0.00 | 100 | 1.0 |",
        "| classic | fp32 | greedy | 128 | 2.0 | 6 | 0.00 | 100 | 1.0 |",
        f"| CTranslate2 | fp32 | greedy | its own choice | 8.0 | 24 | 0.00 | {memory} | 4.0 |",
    ]


def test_table_of_training_speeds() -> None:
    # Two rounds after two warm-ups; of each round its own ratio: 8/2 and 8/4, and their median.
    contenders = {train.CLASSIC: contender([5.0, 5.0, 4.0, 2.0]), "mt_cli": contender([5.0, 5.0, 1.0, 1.0])}
    tokens = {train.CLASSIC: [1, 1, 8, 8], "mt_cli": [1, 1, 8, 8]}
    rows = train.table(contenders, tokens, None).splitlines()[2:]
    assert rows == ["| classic, fp32 | 3 | 1.0 | 6.0 | 100 |", "| mt_cli | 8 | 3.0 | 6.0 | 100 |"]


def test_table_of_training_speeds_without_the_classic_loop_compares_nothing() -> None:
    (row,) = train.table({"mt_cli": contender([5.0, 5.0, 1.0])}, {"mt_cli": [1, 1, 8]}, None).splitlines()[2:]
    assert row == "| mt_cli | 8 | – | 6.0 | 100 |"
