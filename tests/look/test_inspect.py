"""What `inspect` says is in a run: counted, hashed and read by other means than its own."""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from workspace import Workspace

RUN = "runs/tiny"


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own, to change at will."""
    return workspace.copy_run(tmp_path / "run")


def inspected(workspace: Workspace, run: object = RUN, *args: object) -> dict[str, Any]:
    """The one JSON document on stdout."""
    outcome = workspace.call("inspect", run, "--json", *args)
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_hashes_are_those_of_the_files(workspace: Workspace) -> None:
    hashes = inspected(workspace)["sha256"]
    folders = {True: workspace.run / "checkpoints", False: workspace.run}
    files = {name: folders[name.startswith("step-")] / name for name in hashes}
    assert hashes == {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    best = workspace.run.joinpath("best.txt").read_text().strip()
    assert {"config.toml", "tokenizer/joint.model", f"{best}/model.safetensors"} <= set(hashes)


def test_parameters_add_up_to_the_weights_on_disk(workspace: Workspace) -> None:
    best = workspace.run.joinpath("best.txt").read_text().strip()
    weights = load_file(workspace.run / "checkpoints" / best / "model.safetensors")
    *parts, total = inspected(workspace)["parameters"].values()
    assert total == sum(parts) == sum(tensor.numel() for tensor in weights.values())


def test_scores_of_evaluate_are_shown_with_their_signature(workspace: Workspace, run: Path) -> None:
    evaluated = workspace.call("evaluate", run, "--data", workspace.prepared, "--json", "--quiet")
    scores = json.loads(evaluated.out)["splits"]["test"]
    assert inspected(workspace, run)["scores"]["test-greedy"].items() >= scores.items()
    bleu = f"BLEU {scores['bleu']['score']:.2f}  {scores['bleu']['signature']}"
    assert bleu in workspace.call("inspect", run).text


@pytest.mark.parametrize("pointer", ["best", "last"])
def test_checkpoint_is_the_one_asked_for(workspace: Workspace, pointer: str) -> None:
    name = workspace.run.joinpath(f"{pointer}.txt").read_text().strip()
    by_pointer = inspected(workspace, RUN, "--checkpoint", pointer)
    assert by_pointer == inspected(workspace, RUN, "--checkpoint", name)
    assert by_pointer["run"]["checkpoint"] == name
    assert f"{name}/model.safetensors" in by_pointer["sha256"]
    assert list(by_pointer["scores"]) == [f"val, step {int(name.removeprefix('step-'))}"]


def test_looking_changes_nothing_in_the_run(workspace: Workspace, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    inspected(workspace, run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize("name", ["status.json", "eval/test-greedy/scores.json"])
def test_damaged_file_exits_3_and_is_named(workspace: Workspace, run: Path, name: str) -> None:
    run.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
    run.joinpath(name).write_text('{"half": ')
    outcome = workspace.call("inspect", run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {run / name}: ")


def test_run_that_is_missing_is_refused_with_those_that_there_are(workspace: Workspace) -> None:
    outcome = workspace.call("inspect", "runs/tinny")
    assert (outcome.code, outcome.out) == (2, b"")
    assert re.match(r"error: runs/tinny: .*; found: runs/tiny\n", outcome.err)


def test_shapes_are_those_of_the_sentence_on_its_way_through_the_model(
    workspace: Workspace,
) -> None:
    words = ("--shapes", "--text", "Ein Hund schläft.")
    rows = inspected(workspace, RUN, *words)["shapes"]
    found = {row["name"]: row for row in rows}
    num_src, num_tgt = (found[name]["output"][1] for name in ("backend.encoder", "logits"))
    assert found["src_embedding"]["output"][2] == 32
    assert found["backend.encoder.layers.0.linear1"]["output"] == [1, num_src, 64]
    assert found["backend.decoder"]["inputs"][:2] == [[1, num_tgt, 32], [1, num_src, 32]]
    assert found["logits"]["output"] == [1, num_tgt, 420]
    source, target, *lines = workspace.call("inspect", RUN, *words).lines
    assert (len(source.split()), len(target.split())) == (1 + num_src, 1 + num_tgt)
    assert len(lines) == len(rows)
