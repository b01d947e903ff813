"""`scripts/bench`: processes that answer, and the tables by hand-worked cases."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from bench import (
    LIKE_CLASSIC,
    Engine,
    Row,
    Work,
    classic_decoding,
    classic_training,
    decoding_table,
    our_decoding,
    our_training,
)
from workspace import Workspace


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


@pytest.fixture
def args(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """The command line of a measurement in the workspace."""
    monkeypatch.chdir(workspace.folder)
    return argparse.Namespace(config=Path("tiny.toml"), device="cpu", threads=1, length_penalty=1.0)


@pytest.mark.parametrize("build", [classic_training, our_training])
def test_loop_of_each_kind_trains(
    args: argparse.Namespace, build: Callable[[argparse.Namespace, Any], Work]
) -> None:
    work = build(args, "fp32" if build is classic_training else LIKE_CLASSIC)
    assert work(2) > 2


def test_classic_loop_translates_as_the_translator_does(
    workspace: Workspace, args: argparse.Namespace
) -> None:
    lines = workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()
    lines = sorted(lines, key=len)[:5]
    row = Row("classic", workspace.run, "fp32", beam_size=1, batch=2)
    translated = classic_decoding(row, args)(lines)
    assert len(translated) == len(lines)
    assert translated == our_decoding(replace(row, engine="mt_cli"), args)(lines)
