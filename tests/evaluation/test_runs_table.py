"""The `runs` command: every run of a folder in a line, and what differs."""

import json
import shutil
from pathlib import Path

import pytest
from damage import change_json
from workspace import Workspace

from mt_cli.config.load import dump_config, load_config
from mt_cli.machine.files import locked, sha256_bytes


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path) -> Path:
    """Three runs, of which the second has another dropout, and the third is damaged."""
    for name in ("a", "b", "c"):
        workspace.copy_run(tmp_path / "runs" / name)
        shutil.rmtree(tmp_path / "runs" / name / "eval", ignore_errors=True)
    config = tmp_path / "runs" / "b" / "config.toml"
    text = dump_config(load_config(config, ["model.dropout=0.25"]))
    config.write_text(text, encoding="utf-8")
    manifest = config.with_name("manifest.json")
    hashes = json.loads(manifest.read_text())["sha256"] | {
        "config.toml": sha256_bytes(text.encode())
    }
    change_json(manifest, sha256=hashes)
    tmp_path.joinpath("runs", "c", "config.toml").write_text("damaged")
    return tmp_path / "runs"


def test_runs_are_listed_with_scores_and_differences(workspace: Workspace, folder: Path) -> None:
    assert workspace.call("evaluate", folder / "a").code == 0
    outcome = workspace.call("runs", folder, "--json")
    assert outcome.code == 0
    assert "config.toml" in outcome.err
    first, second = json.loads(outcome.text)["runs"]
    scores = json.loads(folder.joinpath("a", "eval", "test-greedy", "scores.json").read_text())
    status = json.loads(folder.joinpath("a", "status.json").read_text())
    assert (first["bleu"], first["chrf"]) == (scores["bleu"]["score"], scores["chrf"]["score"])
    assert (first["val_bleu"], first["step"]) == (status["best_score"], status["step"])
    assert (second["bleu"], second["evaluation"]) == (None, None)
    assert (first["differs"], second["differs"]) == ({}, {"model.dropout": 0.25})
    lines = workspace.call("runs", folder).lines
    assert [line.split()[0] for line in lines[:3]] == ["run", "a", "b"]
    assert max(map(len, lines)) <= 80
    assert scores["bleu"]["signature"] in lines


def test_runs_are_sorted_by_score_and_those_without_come_last(
    workspace: Workspace, folder: Path
) -> None:
    assert workspace.call("evaluate", folder / "b").code == 0
    rows = workspace.call("runs", folder, "--sort", "bleu").lines[1:3]
    assert [row.split()[0] for row in rows] == ["b", "a"]


def test_a_training_that_nobody_is_at_work_on_was_killed(
    workspace: Workspace, folder: Path
) -> None:
    for name in ("a", "b"):
        change_json(folder / name / "status.json", state="running")
    with locked(folder / "a"):
        rows = workspace.call("runs", folder).lines[1:3]
    assert [row.split()[:2] for row in rows] == [["a", "running"], ["b", "killed"]]


def test_a_folder_without_runs_is_an_error(workspace: Workspace, tmp_path: Path) -> None:
    outcome = workspace.call("runs", tmp_path)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "no run in it" in outcome.err


def test_the_same_split_of_other_data_does_not_count(workspace: Workspace, folder: Path) -> None:
    assert workspace.call("evaluate", folder / "a").code == 0
    foreign = folder / "a" / "eval" / "test-81dfb4a6-greedy"
    shutil.copytree(folder / "a" / "eval" / "test-greedy", foreign)
    scores = json.loads(foreign.joinpath("scores.json").read_text())
    del scores["split"]
    scores["bleu"]["score"] = 99.0
    foreign.joinpath("scores.json").write_text(json.dumps(scores))
    first, _ = json.loads(workspace.call("runs", folder, "--json").text)["runs"]
    assert first["evaluation"] == "test-greedy"


def test_scores_of_other_weights_do_not_count(workspace: Workspace, folder: Path) -> None:
    assert workspace.call("evaluate", folder / "a").code == 0
    kept = folder / "a" / "eval" / "test-greedy" / "scores.json"
    best = folder / "a" / "checkpoints" / folder.joinpath("a", "best.txt").read_text().strip()
    hashes = json.loads(best.joinpath("manifest.json").read_text())["sha256"]
    assert json.loads(kept.read_text())["weights"] == hashes["model.safetensors"]
    change_json(kept, weights=None)
    first, _ = json.loads(workspace.call("runs", folder, "--json").text)["runs"]
    assert (first["bleu"], first["evaluation"]) == (None, None)


def test_what_cannot_be_true_is_not_shown(workspace: Workspace, folder: Path) -> None:
    change_json(folder / "a" / "status.json", elapsed_s=10**400, state=None)
    first = workspace.call("runs", folder).lines[1]
    assert first.split()[:2] == ["a", "unknown"]
    assert first.split()[-1] == "-"
