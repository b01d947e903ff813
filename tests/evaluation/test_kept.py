"""Translations and scores that a run keeps: whole, apart by search, and never of altered texts."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from workspace import Workspace

from mt_cli.decoding.search import Sampling
from mt_cli.evaluation.evaluate import System
from mt_cli.evaluation.kept import open_evaluation
from mt_cli.evaluation.runs_table import summarize_runs
from mt_cli.runs.opening import open_run
from mt_cli.translation.options import DecodingOptions


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    return workspace.copy_run(tmp_path / "run")


@pytest.fixture
def kept(workspace: Workspace, run: Path) -> Path:
    assert workspace.call("evaluate", run, "--split", "val").code == 0
    return run / "eval" / "val-greedy"


def test_an_evaluation_is_read_as_it_was_kept(kept: Path) -> None:
    found = open_evaluation(kept)
    assert found is not None
    assert (len(found.sources), len(found.refs), found.record["n"]) == (20, 20, 20)
    assert kept.joinpath("hyp.txt").read_text(encoding="utf-8").split("\n")[:-1] == found.hyps
    assert open_evaluation(kept.with_name("test-greedy")) is None


@pytest.mark.parametrize("name", ["src.txt", "ref.txt", "hyp.txt"])
def test_an_evaluation_whose_texts_changed_is_none(kept: Path, name: str) -> None:
    text = (kept / name).read_bytes()
    (kept / name).write_bytes(text.replace(b"a", b"b", 1))
    assert open_evaluation(kept) is None


SEARCHES: list[dict[str, Any]] = [
    {},
    {"beam_size": 2},
    {"max_len_factor": 0.5},
    {"max_len_extra": 3},
    {"min_len": 4},
    {"sampling": Sampling()},
    {"sampling": Sampling(), "seed": 2},
    {"sampling": Sampling(top_k=3)},
    {"backend": "torch"},
    {"checkpoint": "last"},
]


def test_each_search_keeps_its_translations_apart(run: Path) -> None:
    found = [System([run], DecodingOptions.of(options)).decoding for options in SEARCHES]
    assert found[0] == "greedy"
    assert len(set(found)) == len(SEARCHES)
    same = DecodingOptions.of({"checkpoint": ["best"], "backend": None})
    assert System([run], same).decoding == "greedy"


def test_what_a_kill_left_is_no_evaluation_and_no_run(
    workspace: Workspace, run: Path, kept: Path
) -> None:
    shutil.copytree(kept, kept.with_name(".other-greedy.partial"))
    workspace.copy_run(run.with_name(".run.old"))
    assert open_run(run).kept_evaluations() == [kept]
    assert [each.folder for each in summarize_runs(run.parent)] == [run]
