"""The model card: whether it says what the run's other files say, and leaves a reader's own README
alone.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
from damage import change_json
from huggingface_hub import ModelCard
from safetensors import safe_open
from workspace import SEED, Workspace


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own, with the card that training wrote."""
    return workspace.copy_run(tmp_path / "run")


def rows_of(run: Path) -> dict[str, list[str]]:
    """Cells of the card's tables, by the first of each row."""
    lines = run.joinpath("README.md").read_text(encoding="utf-8").splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    rows = [[cell.strip().replace(r"\|", "|") for cell in each] for each in cells]
    return {f"{head} {cells[0][:3]}" if len(cells) > 1 else head: cells for head, *cells in rows}


def test_card_of_training_says_what_its_files_say(run: Path) -> None:
    status = json.loads(run.joinpath("status.json").read_bytes())
    best = run.joinpath("best.txt").read_text(encoding="utf-8").strip()
    with safe_open(run / "checkpoints" / best / "model.safetensors", framework="np") as weights:
        parameters = sum(weights.get_tensor(name).size for name in weights.keys())  # noqa: SIM118
    rows = rows_of(run)
    assert rows["parameters"] == [f"{parameters:,}"]
    assert rows["checkpoint"] == [best]
    assert rows["updates"] == [
        f"{status['step']:,} of {status['total_steps']:,}, {status['state']}"
    ]
    assert rows["seed"] == [str(SEED)]
    assert rows[f"val, step {status['best_step']} BLE"][0] == f"BLEU {status['best_score']:.2f}"


def test_the_hub_reads_the_cards_front_matter(workspace: Workspace, run: Path) -> None:
    assert workspace.call("evaluate", run).code == 0
    data = ModelCard.load(run / "README.md", ignore_metadata_errors=False).data
    assert (data.language, data.pipeline_tag) == (["de", "en"], "translation")
    scores = json.loads(run.joinpath("eval/test-greedy/scores.json").read_bytes())
    found = {each.metric_type: each.metric_value for each in data.eval_results}
    assert found["bleu"] == pytest.approx(scores["bleu"]["score"], abs=0.01)


def test_card_gains_what_is_evaluated(workspace: Workspace, run: Path) -> None:
    outcome = workspace.call("evaluate", run, "--json")
    assert outcome.code == 0, outcome.err
    scores = json.loads(outcome.text)["splits"]["test"]
    rows = rows_of(run)
    for metric in (scores["bleu"], scores["chrf"], scores["ter"]):
        score = f"{metric['name']} {metric['score']:.2f}"
        assert rows[f"test-greedy {score[:3]}"] == [
            score,
            str(scores["n"]),
            f"`{metric['signature']}`",
            "beam_size 1",
        ]


def test_another_checkpoints_and_an_ensembles_scores_are_not_the_models(
    workspace: Workspace, run: Path
) -> None:
    assert workspace.call("evaluate", run, workspace.run).code == 0
    assert workspace.call("evaluate", run).code == 0
    scores = run / "eval" / "test-greedy" / "scores.json"
    names = ("old-greedy", "rounded-greedy")
    other, rounded = (run / "eval" / name / "scores.json" for name in names)
    for copy in (other, rounded):
        copy.parent.mkdir()
        shutil.copy(scores, copy)
    change_json(other, checkpoint="step-00000001")
    change_json(rounded, weights="0" * 64)
    assert workspace.call("evaluate", run, "--split", "val").code == 0
    assert {name.split()[0] for name in rows_of(run) if "greedy" in name} == {
        "test-greedy",
        "val-greedy",
    }


def test_readme_of_ones_own_stays(workspace: Workspace, run: Path) -> None:
    run.joinpath("README.md").write_text("Mine.\n", encoding="utf-8")
    assert workspace.call("evaluate", run).code == 0
    assert run.joinpath("README.md").read_text(encoding="utf-8") == "Mine.\n"


def test_scores_of_ones_own_files_stay_out_of_the_card(workspace: Workspace, run: Path) -> None:
    before = run.joinpath("README.md").read_bytes()
    files = ("--src", workspace.corpus("val.de"), "--ref", workspace.corpus("val.en"))
    assert workspace.call("evaluate", run, *files).code == 0
    assert run.joinpath("README.md").read_bytes() == before
    assert workspace.call("evaluate", run, "--split", "val").code == 0
    assert {name.split()[0] for name in rows_of(run) if "greedy" in name} == {"val-greedy"}
