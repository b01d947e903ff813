"""`scripts/bench`: processes that answer, and the tables by hand-worked cases."""

from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from pathlib import Path

import pytest
from bench import CLASSIC, Engine, Row, decoding_table, start, training_table


def build() -> Callable[[int], int]:
    return abs


@pytest.mark.processes
def test_engine_answers_from_its_own_process() -> None:
    engine: Engine[int, int] = start(build)
    engine.ask(-4)
    assert engine.answers == [4]
    assert len(engine.seconds) == 1


def test_table_of_training_compares_within_each_round() -> None:
    # Two rounds after a warm-up; of each round its own ratio: 8/2 and 8/4, and their median.
    engines = {
        CLASSIC: Engine[int, int](Pipe()[0], [5.0, 4.0, 2.0], [1, 8, 8]),
        "mt_cli": Engine[int, int](Pipe()[0], [5.0, 1.0, 1.0], [1, 8, 8]),
    }
    rows = training_table(engines).splitlines()[2:]
    assert rows == ["| classic, fp32 | 3 | 1.0 |", "| mt_cli | 8 | 3.0 |"]


def test_table_of_decoding_compares_with_the_classic_loop_of_as_many_lines() -> None:
    texts = ["a dog", "a cat"]

    def measured(seconds: list[float]) -> Engine[Sequence[str], list[str]]:
        return Engine(Pipe()[0], seconds, [texts] * len(seconds))

    run = Path("run")
    engines = {
        Row("classic", run, "fp32", 1, 1): measured([9.0, 2.0, 4.0]),
        Row("classic", run, "fp32", 1, 128): measured([9.0, 1.0]),
        Row("mt_cli", run, "fp32", 5, 0): measured([9.0, 0.25]),
    }
    assert decoding_table(engines, texts).splitlines()[2:] == [
        "| classic | fp32 | greedy | 1 | 0.7 | 0.00 | 1.0 |",
        "| classic | fp32 | greedy | 128 | 2.0 | 0.00 | 1.0 |",
        "| mt_cli | fp32 | beam 5 | its own choice | 8.0 | 0.00 | 4.0 |",
    ]
