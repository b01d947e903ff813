"""What `inspect` says is in a run: counted, hashed and read by other means than its own."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file
from workspace import Outcome, Workspace

RUN = "runs/tiny"
Document = dict[str, dict[str, object]]


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own, to change at will."""
    return workspace.copy_run(tmp_path / "run")


def inspect(
    workspace: Workspace, run: object = RUN, *args: object, cwd: Path | None = None
) -> Outcome:
    return workspace.call("inspect", run, *args, cwd=cwd)


def document(outcome: Outcome) -> Document:
    """The one JSON document on stdout."""
    assert outcome.code == 0, outcome.err
    found: Document = json.loads(outcome.out)
    return found


def test_hashes_are_those_of_the_files(workspace: Workspace) -> None:
    hashes = document(inspect(workspace, RUN, "--json"))["sha256"]
    folders = {True: workspace.run / "checkpoints", False: workspace.run}
    found = {
        name: hashlib.sha256((folders[name.startswith("step-")] / name).read_bytes()).hexdigest()
        for name in hashes
    }
    assert hashes == found
    checkpoint = workspace.run.joinpath("best.txt").read_text().strip()
    assert {"config.toml", "tokenizer/joint.model", f"{checkpoint}/model.safetensors"} <= set(
        hashes
    )


def test_scores_of_evaluate_are_shown_with_their_signature(workspace: Workspace, run: Path) -> None:
    evaluated = workspace.call("evaluate", run, "--data", workspace.prepared, "--json", "--quiet")
    scores = document(evaluated)["splits"]["test"]
    assert isinstance(scores, dict)
    shown = document(inspect(workspace, run, "--json"))["scores"]["test-greedy"]
    assert isinstance(shown, dict)
    assert shown.items() >= scores.items()
    assert (
        f"BLEU {scores['bleu']['score']:.2f}  {scores['bleu']['signature']}"
        in inspect(workspace, run).text
    )


@pytest.mark.parametrize("pointer", ["best", "last"])
def test_checkpoint_is_the_one_asked_for(workspace: Workspace, pointer: str) -> None:
    name = workspace.run.joinpath(f"{pointer}.txt").read_text().strip()
    by_pointer = document(inspect(workspace, RUN, "--json", "--checkpoint", pointer))
    assert by_pointer == document(inspect(workspace, RUN, "--json", "--checkpoint", name))
    assert by_pointer["run"]["checkpoint"] == name
    assert f"{name}/model.safetensors" in by_pointer["sha256"]
    assert list(by_pointer["scores"]) == [f"val, step {int(name.removeprefix('step-'))}"]


def test_looking_changes_nothing_in_the_run(workspace: Workspace, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    inspect(workspace, run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize("name", ["status.json", "env.json", "eval/test-greedy/scores.json"])
def test_damaged_file_exits_3_and_is_named(workspace: Workspace, run: Path, name: str) -> None:
    run.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
    run.joinpath(name).write_text('{"half": ')
    outcome = inspect(workspace, run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {run / name}: not valid JSON")


def test_run_without_checkpoints_is_described_without(workspace: Workspace, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    run.joinpath("best.txt").unlink()
    run.joinpath("last.txt").unlink()
    report = document(inspect(workspace, run, "--json"))
    assert report["run"]["checkpoint"] is None
    assert not [name for name in report["sha256"] if name.startswith("step-")]


@pytest.mark.parametrize(
    ("run", "code", "message"),
    [
        ("runs/tinny", 2, "error: runs/tinny: no such run folder; found: runs/tiny\n"),
        ("corpus", 2, "error: corpus: not a run folder"),
        ("tiny.toml", 2, "error: tiny.toml: not a run folder"),
        ("data/prepared/tiny", 3, "error: data/prepared/tiny/manifest.json: not a run manifest"),
    ],
    ids=["missing", "another folder", "a file", "prepared data"],
)
def test_run_that_is_none_is_refused(
    workspace: Workspace, run: str, code: int, message: str
) -> None:
    outcome = inspect(workspace, run)
    assert (outcome.code, outcome.out) == (code, b"")
    assert outcome.err.startswith(message)


def test_shapes_are_those_of_the_sentence_on_its_way_through_the_model(
    workspace: Workspace,
) -> None:
    words = ("--shapes", "--text", "Ein Hund schläft.")
    outcome = inspect(workspace, RUN, *words, "--json")
    assert outcome.code == 0, outcome.err
    rows = json.loads(outcome.out)["shapes"]
    found = {row["name"]: row for row in rows}
    (_, num_src), (_, num_tgt) = (
        found["backend.encoder"]["output"][:2],
        found["logits"]["output"][:2],
    )
    assert found["src_embedding"]["output"][2] == 64
    assert found["backend.encoder.layers.0.linear1"]["output"] == [1, num_src, 128]
    assert found["backend.decoder"]["inputs"][:2] == [[1, num_tgt, 64], [1, num_src, 64]]
    assert found["logits"]["output"] == [1, num_tgt, 420]
    source, target, *lines = inspect(workspace, RUN, *words).lines
    assert (len(source.split()), len(target.split())) == (1 + num_src, 1 + num_tgt)
    assert len(lines) == len(rows)


def test_empty_text_is_refused(workspace: Workspace) -> None:
    outcome = inspect(workspace, RUN, "--shapes", "--text", " ")
    assert (outcome.code, outcome.out) == (2, b"")


@pytest.mark.parametrize("name", ["maps.pdf", "-"])
def test_maps_of_another_ending_are_refused_before_the_run_is_read(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    run = tmp_path / "damaged"
    run.mkdir()
    run.joinpath("manifest.json").touch()
    outcome = inspect(workspace, run, "--attention", name, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(f"error: {name}: ")
    assert list(tmp_path.iterdir()) == [run]


def test_parameters_add_up_to_the_weights_on_disk(workspace: Workspace) -> None:
    found = document(inspect(workspace, RUN, "--json"))
    best = workspace.run.joinpath("best.txt").read_text().strip()
    weights = load_file(workspace.run / "checkpoints" / best / "model.safetensors")
    total = sum(tensor.numel() for tensor in weights.values())
    *parts, last = (int(str(number)) for number in found["parameters"].values())
    assert last == sum(parts) == total
