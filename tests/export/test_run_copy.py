"""Small copies of runs: as usable as the run, and honest about what they cannot do."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from workspace import Outcome, Workspace


def export(workspace: Workspace, run: Path, folder: Path, *args: object) -> Outcome:
    return workspace.call("export", run, folder, "--to", "run", *args)


def weights_below(folder: Path) -> dict[str, torch.Tensor]:
    (path,) = folder.glob("checkpoints/*/model.safetensors")
    return safetensors.torch.load_file(path)


@pytest.fixture(scope="module")
def run(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = workspace.copy_run(tmp_path_factory.mktemp("runs") / "run")
    assert workspace.call("evaluate", folder).code == 0
    return folder


@pytest.fixture(scope="module")
def copy(workspace: Workspace, run: Path) -> Path:
    folder = run.with_name("copy")
    assert export(workspace, run, folder).code == 0
    return folder


@pytest.mark.parametrize(
    "command", ["translate", "translate --beam-size 3", "inspect --json", "doctor"]
)
def test_copy_is_used_as_the_run(workspace: Workspace, run: Path, copy: Path, command: str) -> None:
    verb, *flags = command.split()
    stdin = workspace.corpus("test.de").read_bytes()
    theirs, ours = (workspace.call(verb, each, *flags, stdin=stdin) for each in (copy, run))
    assert theirs.code == 0, theirs.err
    if verb == "translate":
        assert theirs.out == ours.out


def test_halves_take_half_the_room_and_are_proved(
    workspace: Workspace, run: Path, copy: Path, tmp_path: Path
) -> None:
    outcome = export(workspace, run, tmp_path / "halves", "--quantization", "float16")
    assert outcome.code == 0, outcome.err
    assert outcome.lines[-1].startswith("val  identical  ")
    whole, halves = weights_below(copy), weights_below(tmp_path / "halves")
    for name, expected in whole.items():
        assert halves[name].dtype == torch.float16
        torch.testing.assert_close(halves[name], expected.half(), rtol=0, atol=0)
    assert workspace.call("translate", tmp_path / "halves", "--text", "Ein Hund.").code == 0


def test_checkpoint_that_was_not_the_best_is_the_best_of_its_copy(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ("--set", "training.validate_every=4", "--max-steps", "8")
    assert workspace.call("train", "tiny.toml", "--run", run, *options).code == 0
    best, last = ((run / f"{name}.txt").read_text() for name in ("best", "last"))
    names = sorted({best.strip(), last.strip()})
    for name in names:
        assert export(workspace, run, tmp_path / name, "--checkpoint", name).code == 0
        assert (tmp_path / name / "best.txt").read_text().strip() == name
        assert workspace.call("inspect", tmp_path / name).code == 0


def test_training_goes_on_from_a_run_and_not_from_its_copy(
    workspace: Workspace, copy: Path, tmp_path: Path
) -> None:
    resumed = workspace.call("train", "tiny.toml", "--run", copy, "--resume", "--max-steps", "999")
    assert resumed.code == 3
    assert "an exported checkpoint, without what training needs to go on from it" in resumed.err
    begun = (
        "train",
        "tiny.toml",
        "--run",
        tmp_path / "new",
        "--init-from",
        copy,
        "--max-steps",
        "1",
    )
    outcome = workspace.call(*begun)
    assert outcome.code == 0, outcome.err


def test_what_a_copy_cannot_be_is_refused_before_anything_is_written(
    workspace: Workspace, run: Path, copy: Path, tmp_path: Path
) -> None:
    stored = export(workspace, run, tmp_path / "x", "--quantization", "int8")
    assert stored.code == 2
    assert (
        "a run's weights are not stored as int8; take --quantization none or float16" in stored.err
    )
    trained = export(workspace, copy, run, "--overwrite")
    assert trained.code == 2
    assert "holds the state of a training: --overwrite leaves it alone; name another" in trained.err
    assert any(run.glob("checkpoints/*/state.safetensors"))
    assert export(workspace, run, copy).code == 2
    assert export(workspace, run, copy, "--overwrite").code == 0
