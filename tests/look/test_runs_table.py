"""The `runs` command: every run of a folder in a line, and what differs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from damage import change_json, rehash
from workspace import Workspace

from mt_cli.config.load import dump_config, load_config
from mt_cli.machine.locks import locked


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path) -> Path:
    """Three runs, of which the second has another dropout, and the third is damaged."""
    runs = tmp_path / "runs"
    for name in ("a", "b", "c"):
        workspace.copy_run(runs / name)
        shutil.rmtree(runs / name / "eval", ignore_errors=True)
    config = load_config(runs / "b" / "config.toml", ["model.dropout=0.25"])
    rehash(runs / "b", "config.toml", dump_config(config).encode())
    runs.joinpath("c", "config.toml").write_text("damaged")
    return runs


@pytest.fixture
def kept(workspace: Workspace, folder: Path) -> Path:
    """The scores of run `b`."""
    assert workspace.call("evaluate", folder / "b").code == 0
    return folder / "b" / "eval" / "test-greedy" / "scores.json"


def rows_of(workspace: Workspace, folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(workspace.call("runs", folder, "--json").text)["runs"]
    return rows


def first_words(workspace: Workspace, folder: Path, *flags: object) -> list[list[str]]:
    """The first two words of each run's line."""
    outcome = workspace.call("runs", folder, *flags)
    assert outcome.code == 0, outcome.err
    assert "config.toml" in outcome.err
    assert max(map(len, outcome.lines)) <= 80
    return [line.split()[:2] for line in outcome.lines[1:3]]


def test_runs_are_listed_with_scores_and_differences(
    workspace: Workspace, folder: Path, kept: Path
) -> None:
    first, second = rows_of(workspace, folder)
    scores = json.loads(kept.read_text())
    status = json.loads(folder.joinpath("b", "status.json").read_text())
    assert (first["bleu"], first["evaluation"]) == (None, None)
    assert (second["bleu"], second["chrf"]) == (scores["bleu"]["score"], scores["chrf"]["score"])
    assert (second["val_bleu"], second["step"]) == (status["best_score"], status["step"])
    assert (first["differs"], second["differs"]) == ({}, {"model.dropout": 0.25})
    assert [name for name, _ in first_words(workspace, folder)] == ["a", "b"]
    best_first = first_words(workspace, folder, "--sort", "bleu")
    assert [name for name, _ in best_first] == ["b", "a"]
    assert scores["bleu"]["signature"] in workspace.call("runs", folder).lines


def test_a_training_that_nobody_is_at_work_on_was_killed(
    workspace: Workspace, folder: Path
) -> None:
    for name in ("a", "b"):
        change_json(folder / name / "status.json", state="running")
    with locked(folder / "a"):
        rows = first_words(workspace, folder)
    assert rows == [["a", "running"], ["b", "killed"]]


def test_the_same_split_of_other_data_does_not_count(
    workspace: Workspace, folder: Path, kept: Path
) -> None:
    foreign = shutil.copytree(kept.parent, kept.parent.with_name("test-81dfb4a6-greedy"))
    change_json(foreign / "scores.json", split=None, bleu={"score": 99.0})
    assert rows_of(workspace, folder)[1]["evaluation"] == "test-greedy"


def test_scores_of_other_weights_do_not_count(
    workspace: Workspace, folder: Path, kept: Path
) -> None:
    best = folder / "b" / "checkpoints" / folder.joinpath("b", "best.txt").read_text().strip()
    hashes = json.loads(best.joinpath("manifest.json").read_text())["sha256"]
    assert json.loads(kept.read_text())["weights"] == hashes["model.safetensors"]
    change_json(kept, weights=None)
    run = rows_of(workspace, folder)[1]
    assert (run["bleu"], run["evaluation"]) == (None, None)
