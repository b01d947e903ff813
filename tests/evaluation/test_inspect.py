"""What `inspect` says is in a run: counted, hashed and read by other means than its own."""

import hashlib
import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from safetensors.torch import load_file
from workspace import Outcome, Workspace

from mt_cli.model.inside import LEVELS

RUN = "runs/tiny"
SECTIONS = ["run", "parameters", "vocabulary", "scores", "data", "sha256", "environment", "config"]

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
        ("tiny.toml", 2, "error: tiny.toml: a config, where a run is needed"),
        ("data/prepared/tiny", 2, "error: data/prepared/tiny: prepared data, where a run"),
    ],
    ids=["missing", "another folder", "a file", "prepared data"],
)
def test_run_that_is_none_is_refused(
    workspace: Workspace, run: str, code: int, message: str
) -> None:
    outcome = inspect(workspace, run)
    assert (outcome.code, outcome.out) == (code, b"")
    assert outcome.err.startswith(message)


def shapes_of(workspace: Workspace, *args: object) -> dict[str, object]:
    outcome = inspect(workspace, RUN, "--shapes", "--json", "--text", "Ein Hund schläft.", *args)
    assert (outcome.code, outcome.err) == (0, "")
    found: dict[str, object] = json.loads(outcome.out)
    return found


def tensors_of(workspace: Workspace, *args: object) -> list[dict[str, object]]:
    tensors = shapes_of(workspace, *args)["tensors"]
    assert isinstance(tensors, list)
    return tensors


def test_letters_and_sizes_of_each_tensor_agree(workspace: Workspace) -> None:
    legend = shapes_of(workspace)["legend"]
    assert isinstance(legend, dict)
    sizes = {**legend, "1": 1}
    tensors = tensors_of(workspace)
    assert [tensor["shape"] for tensor in tensors] == [
        [sizes[letter] for letter in str(tensor["letters"]).split()] for tensor in tensors
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_level_shows_itself_and_those_before_it(workspace: Workspace, level: str) -> None:
    order = ["model", "layer", "block", "head", "attention"]
    shown = tensors_of(workspace, "--level", level)
    assert {tensor["level"] for tensor in shown} == set(order[: order.index(level) + 1])
    assert shown == [
        tensor
        for tensor in tensors_of(workspace)
        if tensor["level"] in order[: order.index(level) + 1]
    ]


@pytest.mark.parametrize("look", [["--shapes"], ["--masks", "masks.svg"]], ids=["shapes", "masks"])
def test_empty_text_is_refused(workspace: Workspace, run: Path, look: list[str]) -> None:
    outcome = inspect(workspace, run, *look, "--text", " ", cwd=run)
    assert (outcome.code, outcome.out) == (2, b"")
    assert not run.joinpath("masks.svg").exists()


def test_masks_are_drawn_as_svg(workspace: Workspace, tmp_path: Path) -> None:
    outcome = inspect(workspace, RUN, "--masks", tmp_path / "masks.svg", "--text", ".")
    texts = [element.text for element in ET.parse(tmp_path / "masks.svg").iter() if element.text]
    assert outcome == Outcome(0, b"", "")
    assert texts.count("<pad>") == 3 * 3
    assert {"masks: rows may attend to the dark columns", "cross-attention", "<s>", "</s>"} <= set(
        texts
    )


@pytest.mark.parametrize("name", ["masks.pdf", "-"])
def test_masks_of_another_ending_are_refused_before_the_run_is_read(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    outcome = inspect(workspace, "no/such/run", "--masks", name, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "the file's ending says how to draw" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_parameters_add_up_to_the_weights_on_disk(workspace: Workspace) -> None:
    found = document(inspect(workspace, RUN, "--json"))
    best = workspace.run.joinpath("best.txt").read_text().strip()
    weights = load_file(workspace.run / "checkpoints" / best / "model.safetensors")
    total = sum(tensor.numel() for tensor in weights.values())
    *parts, last = (int(str(number)) for number in found["parameters"].values())
    assert last == sum(parts) == total
