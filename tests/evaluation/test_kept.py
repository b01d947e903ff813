"""What a run keeps of its evaluations, and its model card: whether it says what the run's other
files say, and leaves a reader's own README alone.
"""

import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from damage import change_json
from huggingface_hub import ModelCard
from safetensors import safe_open
from workspace import SEED, Workspace

from mt_cli.look.inspect import summarize_runs
from mt_cli.runs.opening import open_run


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own, with the card that training wrote."""
    return workspace.copy_run(tmp_path / "run")


def evaluate(workspace: Workspace, *args: object) -> None:
    outcome = workspace.call("evaluate", *args)
    assert outcome.code == 0, outcome.err


def test_an_evaluation_keeps_its_texts_and_scores(workspace: Workspace, run: Path) -> None:
    evaluate(workspace, run, "--split", "val")
    kept = run / "eval" / "val-greedy"
    texts = {name: (kept / name).read_bytes() for name in ("src.txt", "ref.txt", "hyp.txt")}
    assert texts["src.txt"] == workspace.corpus("val.de").read_bytes()
    assert texts["ref.txt"] == workspace.corpus("val.en").read_bytes()
    scores = json.loads(kept.joinpath("scores.json").read_text())
    assert scores["n"] == texts["hyp.txt"].count(b"\n") == 20
    assert scores["sha256"] == {name: sha256(text).hexdigest() for name, text in texts.items()}


def test_what_a_kill_left_is_no_evaluation_and_no_run(workspace: Workspace, run: Path) -> None:
    evaluate(workspace, run)
    kept = run / "eval" / "test-greedy"
    shutil.copytree(kept, kept.with_name(".other-greedy.partial"))
    workspace.copy_run(run.with_name(".run.old"))
    assert open_run(run).kept_evaluations() == [kept]
    assert [each.folder for each in summarize_runs(run.parent)] == [run]


# The card


def rows_of(run: Path) -> dict[str, list[str]]:
    """Cells of the card's tables, by the first of each row."""
    lines = run.joinpath("README.md").read_text(encoding="utf-8").splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    rows = [[cell.strip().replace(r"\|", "|") for cell in each] for each in cells]
    return {f"{head} {cells[0][:3]}" if len(cells) > 1 else head: cells for head, *cells in rows}


def evaluations_in_card(run: Path) -> set[str]:
    return {name.split()[0] for name in rows_of(run) if "greedy" in name}


def test_card_of_training_says_what_its_files_say(run: Path) -> None:
    status = json.loads(run.joinpath("status.json").read_bytes())
    best = run.joinpath("best.txt").read_text(encoding="utf-8").strip()
    with safe_open(run / "checkpoints" / best / "model.safetensors", framework="np") as weights:
        parameters = sum(weights.get_tensor(name).size for name in weights.keys())  # noqa: SIM118
    rows = rows_of(run)
    updates = f"{status['step']:,} of {status['total_steps']:,}, {status['state']}"
    found = [rows[key] for key in ("parameters", "checkpoint", "updates", "seed")]
    assert found == [[f"{parameters:,}"], [best], [updates], [str(SEED)]]
    assert rows[f"val, step {status['best_step']} BLE"][0] == f"BLEU {status['best_score']:.2f}"


def test_card_gains_what_is_evaluated_and_the_hub_reads_it(workspace: Workspace, run: Path) -> None:
    evaluate(workspace, run)
    scores = json.loads(run.joinpath("eval/test-greedy/scores.json").read_bytes())
    rows = rows_of(run)
    for metric in (scores["bleu"], scores["chrf"], scores["ter"]):
        score = f"{metric['name']} {metric['score']:.2f}"
        expected = [score, str(scores["n"]), f"`{metric['signature']}`", "beam_size 1"]
        assert rows[f"test-greedy {score[:3]}"] == expected
    data = ModelCard.load(run / "README.md", ignore_metadata_errors=False).data
    assert (data.language, data.pipeline_tag) == (["de", "en"], "translation")
    found = {each.metric_type: each.metric_value for each in data.eval_results}
    assert found["bleu"] == pytest.approx(scores["bleu"]["score"], abs=0.01)


def test_scores_of_others_and_of_ones_own_files_stay_out_of_the_card(
    workspace: Workspace, run: Path
) -> None:
    """Of an ensemble, another checkpoint, weights that were rounded, and files."""
    evaluate(workspace, run, workspace.run)
    files = ("--src", workspace.corpus("val.de"), "--ref", workspace.corpus("val.en"))
    evaluate(workspace, run, *files)
    evaluate(workspace, run)
    kept = run / "eval" / "test-greedy"
    changes = {
        "old-greedy": {"checkpoint": "step-00000001"},
        "rounded-greedy": {"weights": "0" * 64},
    }
    for name, change in changes.items():
        change_json(shutil.copytree(kept, kept.with_name(name)) / "scores.json", **change)
    evaluate(workspace, run, "--split", "val")
    assert len([*run.glob("eval/[!.]*")]) == 6
    assert evaluations_in_card(run) == {"test-greedy", "val-greedy"}


def test_readme_of_ones_own_stays(workspace: Workspace, run: Path) -> None:
    run.joinpath("README.md").write_text("Mine.\n", encoding="utf-8")
    evaluate(workspace, run)
    assert run.joinpath("README.md").read_text(encoding="utf-8") == "Mine.\n"
