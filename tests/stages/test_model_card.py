"""The model card: whether it says what the run's other files say, and leaves a reader's own README alone."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard, metadata_load
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from safetensors import safe_open
from workspace import Workspace

from mt_cli.artefacts.json_files import sealed, write_json
from mt_cli.artefacts.run import open_run
from mt_cli.stages.hub_metadata import MARK, front_matter
from mt_cli.stages.kept_scores import KeptScore


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
    assert rows["updates"] == [f"{status['step']:,} of {status['total_steps']:,}, {status['state']}"]
    assert rows["seed"] == ["4"]  # workspace.CONFIG
    assert rows[f"val, step {status['best_step']} BLE"][0] == f"BLEU {status['best_score']:.2f}"


def test_card_gains_what_is_evaluated(workspace: Workspace, run: Path) -> None:
    outcome = workspace.call("evaluate", run, "--json")
    assert outcome.code == 0, outcome.err
    scores = json.loads(outcome.text)["splits"]["test"]
    rows = rows_of(run)
    for metric in (scores["bleu"], scores["chrf"], scores["ter"]):
        score = f"{metric['name']} {metric['score']:.2f}"
        assert rows[f"test-greedy {score[:3]}"] == [score, str(scores["n"]), f"`{metric['signature']}`"]


def test_another_checkpoints_and_an_ensembles_scores_are_not_the_models(
    workspace: Workspace, run: Path
) -> None:
    assert workspace.call("evaluate", run, workspace.run).code == 0
    assert workspace.call("evaluate", run).code == 0
    scores = run / "eval" / "test-greedy" / "scores.json"
    other = json.loads(scores.read_bytes()) | {"checkpoint": "step-00000001"}
    run.joinpath("eval", "old-greedy").mkdir()
    write_json(run / "eval" / "old-greedy" / "scores.json", sealed(other))
    assert workspace.call("evaluate", run, "--split", "val").code == 0
    assert {name.split()[0] for name in rows_of(run) if "greedy" in name} == {"test-greedy", "val-greedy"}


def test_readme_of_ones_own_stays(workspace: Workspace, run: Path) -> None:
    run.joinpath("README.md").write_text("Mine.\n", encoding="utf-8")
    assert workspace.call("evaluate", run).code == 0
    assert run.joinpath("README.md").read_text(encoding="utf-8") == "Mine.\n"


def test_card_without_its_first_line_is_ones_own(workspace: Workspace, run: Path) -> None:
    own = run.joinpath("README.md").read_text(encoding="utf-8").replace(f"# {MARK}\n", "")
    run.joinpath("README.md").write_text(own, encoding="utf-8")
    assert workspace.call("evaluate", run).code == 0
    assert run.joinpath("README.md").read_text(encoding="utf-8") == own


@pytest.mark.parametrize("lost", ["status.json", "env.json"])
def test_what_is_not_known_is_left_out(workspace: Workspace, run: Path, lost: str) -> None:
    run.joinpath(lost).unlink()
    assert workspace.call("evaluate", run).code == 0
    assert ("updates" in rows_of(run), "made with" in rows_of(run)) == (
        lost != "status.json",
        lost != "env.json",
    )


def damage_a_score(run: Path) -> None:
    run.joinpath("eval", "old-greedy").mkdir(parents=True)
    run.joinpath("eval", "old-greedy", "scores.json").write_text("{", encoding="utf-8")


def lose_the_best(run: Path) -> None:
    run.joinpath("best.txt").write_text("step-00000001\n", encoding="utf-8")


def make_it_a_folder(run: Path) -> None:
    run.joinpath("README.md").unlink()
    run.joinpath("README.md").mkdir()


@pytest.mark.parametrize("spoil", [damage_a_score, lose_the_best, make_it_a_folder])
def test_card_that_cannot_be_written_costs_no_score(
    workspace: Workspace, run: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(run)
    outcome = workspace.call("evaluate", run, "--checkpoint", "last")
    assert outcome.code == 0, outcome.err
    assert outcome.text.startswith("test  BLEU")
    assert f"warning: {run}/README.md: left as it is: " in outcome.err


def test_odd_name_of_a_folder_is_no_obstacle(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9\n#")))
    outcome = workspace.call("evaluate", run)
    assert outcome.code == 0, outcome.err
    assert "\n# caf\\udce9 #\n" in run.joinpath("README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("stem", ["test", "test-2019"])
def test_own_files_that_are_called_like_a_split_are_not_the_split(
    workspace: Workspace, run: Path, tmp_path: Path, stem: str
) -> None:
    src, ref = (
        Path(shutil.copy(workspace.folder / "corpus" / f"test.{side}", tmp_path / f"{stem}.{side}"))
        for side in ("de", "en")
    )
    outcome = workspace.call("evaluate", run, "--src", src, "--ref", ref)
    assert outcome.code == 0, outcome.err
    (folder,) = (run / "eval").iterdir()
    assert folder.name.startswith("test-")
    for each in ModelCard.load(run / "README.md").data.eval_results:
        assert (each.dataset_type, each.dataset_split) == ("files", folder.name)


# What the Hugging Face Hub reads, by its own library


def test_hub_reads_every_test_set_and_metric(workspace: Workspace, run: Path) -> None:
    assert workspace.call("evaluate", run, "--split", "test", "--split", "val").code == 0
    outcome = workspace.call("evaluate", run, "--beam-size", 2)
    assert outcome.code == 0, outcome.err
    data = ModelCard.load(run / "README.md").data
    assert data.language == ["de", "en"]
    assert (data.pipeline_tag, data.metrics) == ("translation", ["bleu", "chrf", "ter"])
    assert data.model_name == "run"
    found = {
        (each.dataset_split, each.metric_name): (each.metric_type, each.metric_value)
        for each in data.eval_results
    }
    wanted = {}
    for folder in ("test-greedy", "test-beam2-alpha0", "val-greedy"):
        scores = json.loads(run.joinpath("eval", folder, "scores.json").read_bytes())
        split, _, decoding = folder.partition("-")
        for key in ("bleu", "chrf", "ter"):
            name = f"{scores[key]['name']}, {decoding}"
            wanted[split, name] = (key, scores[key]["score"])
    assert found == wanted
    assert {each.metric_args["signature"].partition("|")[0] for each in data.eval_results} == {"nrefs:1"}


def test_hub_takes_the_results_back_as_they_are(workspace: Workspace, run: Path) -> None:
    assert workspace.call("evaluate", run).code == 0
    metadata = metadata_load(run / "README.md")
    assert metadata is not None
    name, results = model_index_to_eval_results(metadata["model-index"])
    assert eval_results_to_model_index(name, results) == metadata["model-index"]


def test_run_without_evaluations_claims_no_results(run: Path) -> None:
    metadata = metadata_load(run / "README.md")
    assert metadata is not None
    assert {"model-index", "metrics"} & set(metadata) == set()


def test_licence_is_only_claimed_where_it_is_known(run: Path) -> None:
    metadata = metadata_load(run / "README.md")
    assert metadata is not None
    assert "license" not in metadata  # the corpus is somebody's own files
    opened = open_run(run)
    sample = opened.config.data.model_copy(update={"corpus": "sample"})
    of_sample = replace(opened, config=opened.config.model_copy(update={"data": sample}))
    assert yaml.safe_load(front_matter("a", of_sample, ()).strip("-"))["license"] == "mit"


@pytest.mark.parametrize("name", ["no", "a: b", 'say "x"', "#1", "a\\b", "\u202ebidi", "\U0001f600", "\x85"])
def test_any_text_is_read_back_from_the_front_matter(run: Path, name: str) -> None:
    opened = open_run(run)
    score = KeptScore("test-greedy", "test", "greedy", "bleu", "BLEU", 12.5, "nrefs:1", 3)
    metadata = yaml.safe_load(front_matter(name, opened, [score]).strip("-"))
    assert metadata["model-index"][0]["name"] == name


def test_card_as_versions_before_wrote_it_is_replaced(workspace: Workspace, run: Path) -> None:
    run.joinpath("README.md").write_text(f"<!-- {MARK} -->\n\n# old\n", encoding="utf-8")
    assert workspace.call("evaluate", run).code == 0
    assert run.joinpath("README.md").read_text(encoding="utf-8").startswith("---\n")
