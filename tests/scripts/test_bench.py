"""`scripts/bench`: contenders whose process ends, and the tables by hand-worked cases."""

import os
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from pathlib import Path

import pytest
from bench import CLASSIC, Contender, Row, decoding_table, left_out_if_ended, start, training_table


def answering(task: int) -> int:
    """Twice the task; at 0 its process ends as if it had been killed."""
    if task == 0:
        os._exit(1)
    return 2 * task


def build() -> Callable[[int], int]:
    return answering


@pytest.mark.processes
def test_contender_that_ends_is_left_out_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    running: Contender[int, int] = start(build)
    assert running.ask(4) == 8
    for task in (0, 1):
        with left_out_if_ended("an engine"):
            running.ask(task)
    assert capsys.readouterr().err == "left out: an engine: its process has ended, see above\n" * 2
    assert running.answers == [8]


def training(seconds: list[float]) -> "Contender[int, int]":
    return Contender(Pipe()[0], ready_s=1.0, seconds=seconds, answers=[1, 1, 8, 8], peak_mb=100.0)


def test_table_of_training_compares_within_each_round() -> None:
    # Two rounds after two warm-ups; of each round its own ratio: 8/2 and 8/4, and their median.
    contenders = {CLASSIC: training([5.0, 5.0, 4.0, 2.0]), "mt_cli": training([5.0, 5.0, 1.0, 1.0])}
    rows = training_table(contenders).splitlines()[2:]
    assert rows == ["| classic, fp32 | 3 | 1.0 | 6.0 | 100 |", "| mt_cli | 8 | 3.0 | 6.0 | 100 |"]


def test_table_of_training_without_the_classic_loop_compares_nothing() -> None:
    (row,) = training_table({"mt_cli": training([5.0, 5.0, 1.0, 1.0])}).splitlines()[2:]
    assert row == "| mt_cli | 8 | – | 6.0 | 100 |"


def test_table_of_decoding_compares_with_the_classic_loop_of_as_many_lines() -> None:
    texts = ["a dog", "a cat"]

    def measured(seconds: list[float]) -> "Contender[Sequence[str], list[str]]":
        return Contender(Pipe()[0], 1.0, seconds, [texts] * len(seconds), 100.0)

    run = Path("run")
    contenders = {
        Row("classic", run, "fp32", 1, 1): measured([9.0, 2.0, 4.0]),
        Row("classic", run, "fp32", 1, 128): measured([9.0, 1.0]),
        Row("mt_cli", run, "fp32", 5, 0): measured([9.0, 0.25]),
    }
    assert decoding_table(contenders, texts).splitlines()[2:] == [
        "| classic | fp32 | greedy | 1 | 0.7 | 0.00 | 100 | 1.0 |",
        "| classic | fp32 | greedy | 128 | 2.0 | 0.00 | 100 | 1.0 |",
        "| mt_cli | fp32 | beam 5 | its own choice | 8.0 | 0.00 | 100 | 4.0 |",
    ]
