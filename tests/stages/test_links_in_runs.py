"""Commands and links inside of a run: nothing outside is written to, and nothing there is deleted."""

import json
from pathlib import Path

import pytest
from damage import IMPOSTORS, replace_by
from workspace import Workspace

MORE = ("--resume", "--set", "training.max_epochs=90")  # than the run has


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    return workspace.copy_run(tmp_path / "run")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Somebody's folder, with a file and what looks like checkpoints in it."""
    for name in ("step-00000001", ".step-00000002.3.partial"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        (tmp_path / "elsewhere" / name / "dear").write_text("kept")
    (tmp_path / "elsewhere" / ".bashrc").write_text("kept")
    return tmp_path / "elsewhere"


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def link(place: Path, target: Path) -> None:
    """Put a link in place of what is there, whose content goes to `target` unless that exists."""
    if target.exists():
        place.rename(place.with_name(f"{place.name}.real"))
    else:
        place.rename(target)
    place.symlink_to(target)


@pytest.mark.parametrize("name", ["checkpoints", "train.log", "metrics.jsonl", "last.txt", "manifest.json"])
def test_training_does_not_go_on_through_a_link(
    workspace: Workspace, run: Path, elsewhere: Path, name: str
) -> None:
    link(run / name, elsewhere if name == "checkpoints" else elsewhere / ".bashrc")
    before = contents(elsewhere)
    outcome = workspace.call("train", "tiny.toml", "--run", run, *MORE)
    assert (outcome.code, outcome.out) == (3, b"")
    assert f"{run / name}: a link, and links inside a run or prepared data are not followed" in outcome.err
    assert contents(elsewhere) == before


def test_moved_checkpoints_behind_a_link_stay_untouched(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    link(run / "checkpoints", tmp_path / "moved")
    before = sorted((tmp_path / "moved").rglob("*"))
    outcome = workspace.call("train", "tiny.toml", "--run", run, *MORE)
    assert (outcome.code, f"{run}/checkpoints: a link" in outcome.err) == (3, True)
    assert sorted((tmp_path / "moved").rglob("*")) == before


def test_scores_are_printed_and_not_kept_through_a_link(
    workspace: Workspace, run: Path, elsewhere: Path
) -> None:
    (run / "eval").symlink_to(elsewhere)
    before = contents(elsewhere)
    outcome = workspace.call("evaluate", run)
    assert (outcome.code, b"BLEU" in outcome.out) == (0, True)
    assert f"warning: test: only printed, not kept: {run}/eval: a link" in outcome.err
    assert contents(elsewhere) == before


def test_card_behind_a_link_is_left_alone(workspace: Workspace, run: Path, elsewhere: Path) -> None:
    (run / "README.md").unlink()
    (run / "README.md").symlink_to(elsewhere / ".bashrc")
    outcome = workspace.call("evaluate", run)
    assert (outcome.code, f"{run}/README.md: left as it is: " in outcome.err) == (0, True)
    assert (elsewhere / ".bashrc").read_text() == "kept"


def test_link_to_a_whole_run_is_as_good_as_the_run(workspace: Workspace, run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert workspace.call("evaluate", tmp_path / "link").code == 0
    before = json.loads((run / "status.json").read_bytes())["step"]
    assert workspace.call("train", "tiny.toml", "--run", tmp_path / "link", *MORE).code == 0
    assert json.loads((run / "status.json").read_bytes())["step"] > before
    assert (run / "eval" / "test-greedy" / "scores.json").is_file()


@pytest.mark.parametrize("name", ["scores.json", "status.json", "metrics.jsonl"])
@pytest.mark.parametrize("kind", IMPOSTORS)
def test_inspecting_neither_hangs_nor_reads_for_ever(
    workspace: Workspace, run: Path, name: str, kind: str
) -> None:
    path = run / "eval" / "test-greedy" / name if name == "scores.json" else run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_by(kind, path)
    outcome = workspace.call("inspect", run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {path}: ")
