"""The model card: whether it says what the run's other files say, and leaves a reader's own README alone."""

import json
import re
from pathlib import Path

import pytest
from safetensors import safe_open
from workspace import Workspace


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own, with the card that training wrote."""
    return workspace.copy_run(tmp_path / "run")


def rows_of(run: Path) -> dict[str, list[str]]:
    """Cells of the card's tables, by the first of each row."""
    lines = run.joinpath("README.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {head: cells for head, *cells in rows if head.strip("- ")}


def test_card_of_training_says_what_its_files_say(run: Path) -> None:
    status = json.loads(run.joinpath("status.json").read_bytes())
    best = run.joinpath("best.txt").read_text(encoding="utf-8").strip()
    with safe_open(run / "checkpoints" / best / "model.safetensors", framework="np") as weights:
        parameters = sum(weights.get_tensor(name).size for name in weights.keys())  # noqa: SIM118
    rows = rows_of(run)
    assert rows["parameters"] == [f"{parameters:,}"]
    assert rows["checkpoint"] == [best]
    assert rows["updates"] == [f"{status['step']:,} of {status['total_steps']:,}, {status['state']}"]
    assert rows["seed"] == ["4"]  # workspace.CONFIG
    assert rows[f"val, step {status['best_step']}"][0] == f"{status['best_score']:.2f}"


def test_card_gains_what_is_evaluated(workspace: Workspace, run: Path) -> None:
    outcome = workspace.call("evaluate", run, "--json")
    assert outcome.code == 0, outcome.err
    scores = json.loads(outcome.text)["splits"]["test"]
    row = rows_of(run)["test-greedy"]
    assert row == [f"{scores['bleu']['score']:.2f}", f"{scores['chrf']['score']:.2f}", str(scores["n"])]
    text = run.joinpath("README.md").read_text(encoding="utf-8")
    assert re.findall("`(BLEU .*|chrF2 .*)`", text) == [
        f"{each['name']} {each['signature']}" for each in (scores["bleu"], scores["chrf"])
    ]


def test_another_checkpoints_and_an_ensembles_scores_are_not_the_models(
    workspace: Workspace, run: Path
) -> None:
    assert workspace.call("evaluate", run, workspace.run).code == 0
    assert workspace.call("evaluate", run).code == 0
    scores = run / "eval" / "test-greedy" / "scores.json"
    other = json.loads(scores.read_bytes()) | {"checkpoint": "step-00000001"}
    run.joinpath("eval", "old-greedy").mkdir()
    run.joinpath("eval", "old-greedy", "scores.json").write_text(json.dumps(other), encoding="utf-8")
    assert workspace.call("evaluate", run, "--split", "val").code == 0
    assert {name for name in rows_of(run) if "greedy" in name} == {"test-greedy", "val-greedy"}


def test_readme_of_ones_own_stays(workspace: Workspace, run: Path) -> None:
    run.joinpath("README.md").write_text("Mine.\n", encoding="utf-8")
    assert workspace.call("evaluate", run).code == 0
    assert run.joinpath("README.md").read_text(encoding="utf-8") == "Mine.\n"


@pytest.mark.parametrize("lost", ["status.json", "env.json"])
def test_run_of_unknown_origin_is_scored_without_a_card(workspace: Workspace, run: Path, lost: str) -> None:
    for name in (lost, "README.md"):
        run.joinpath(name).unlink()
    assert workspace.call("evaluate", run).code == 0
    assert not run.joinpath("README.md").exists()
