"""Translations and scores that a run keeps: whole, and apart by search."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from workspace import Workspace

from mt_cli.decoding.search import Sampling
from mt_cli.evaluation.evaluate import System
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


def test_an_evaluation_keeps_its_texts_and_scores(workspace: Workspace, kept: Path) -> None:
    texts = {name: (kept / name).read_bytes() for name in ("src.txt", "ref.txt", "hyp.txt")}
    assert texts["src.txt"] == workspace.corpus("val.de").read_bytes()
    assert texts["ref.txt"] == workspace.corpus("val.en").read_bytes()
    scores = json.loads(kept.joinpath("scores.json").read_text())
    assert scores["n"] == texts["hyp.txt"].count(b"\n") == 20
    assert scores["sha256"]["hyp.txt"] == sha256(texts["hyp.txt"]).hexdigest()


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
