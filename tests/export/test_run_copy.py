"""Small copies of runs: as usable as the run, and honest about what they cannot do."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from runs_made import add_checkpoint, making
from tiny import TINY
from workspace import Outcome, Workspace

from mt_cli.config.schema import Config, DataConfig
from mt_cli.export.export import export_run
from mt_cli.runs.opening import open_run


def export(workspace: Workspace, run: Path, folder: Path, *args: object) -> Outcome:
    return workspace.call("export", run, folder, "--to", "run", *args)


def weights_below(folder: Path) -> dict[str, torch.Tensor]:
    (path,) = folder.glob("checkpoints/*/model.safetensors")
    return safetensors.torch.load_file(path)


@pytest.fixture(scope="module")
def copy(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copies") / "copy"
    assert export(workspace, workspace.run, folder).code == 0
    return folder


def test_copy_translates_as_the_run_and_can_be_looked_into(
    workspace: Workspace, copy: Path
) -> None:
    stdin = workspace.corpus("test.de").read_bytes()
    theirs = workspace.call("translate", copy, stdin=stdin)
    assert theirs == workspace.call("translate", workspace.run, stdin=stdin)
    assert workspace.call("inspect", copy, "--json").code == 0


def test_halves_are_the_weights_in_float16_and_are_proved(
    workspace: Workspace, copy: Path, tmp_path: Path
) -> None:
    halves = tmp_path / "halves"
    outcome = export(workspace, workspace.run, halves, "--quantization", "float16")
    assert outcome.code == 0, outcome.err
    assert outcome.lines[-1].startswith("val  identical  ")
    expected = {name: weight.half() for name, weight in weights_below(copy).items()}
    torch.testing.assert_close(weights_below(halves), expected, rtol=0, atol=0)
    assert workspace.call("translate", halves, "--text", "Ein Hund.").code == 0


def test_checkpoint_that_was_not_the_best_is_the_best_of_its_copy(tmp_path: Path) -> None:
    with making(tmp_path / "run", Config(model=TINY, data=DataConfig(max_len=15))) as run:
        add_checkpoint(run, 1, pointers=("best",))
        add_checkpoint(run, 2, pointers=("last",))
    export_run(run.folder, tmp_path / "copy", to="run", checkpoint="last")
    assert open_run(tmp_path / "copy").resolve_checkpoint("best") == "step-00000002"
    saved = run.folder / "checkpoints" / "step-00000002" / "model.safetensors"
    expected = safetensors.torch.load_file(saved)
    torch.testing.assert_close(weights_below(tmp_path / "copy"), expected, rtol=0, atol=0)


def test_training_starts_from_a_copy_and_does_not_go_on_with_it(
    workspace: Workspace, copy: Path, tmp_path: Path
) -> None:
    resumed = workspace.call("train", "tiny.toml", "--run", copy, "--resume", "--max-steps", 999)
    assert resumed.code == 3
    started = ("--run", tmp_path / "new", "--init-from", copy, "--max-steps", 1)
    assert workspace.call("train", "tiny.toml", *started).code == 0


def test_only_a_copy_is_overwritten_and_never_a_training(
    workspace: Workspace, copy: Path, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    assert export(workspace, copy, run, "--overwrite").code == 2
    assert any(run.glob("checkpoints/*/state.safetensors"))
    assert export(workspace, run, copy).code == 2
    assert export(workspace, run, copy, "--overwrite").code == 0
