"""The checkpoints of a run: found by name, deleted when nobody needs them, and never through a link."""

import errno
import shutil
from pathlib import Path

import pytest
import torch
from damage import IMPOSTORS, replace_by

from mt_cli.artefacts.checkpoint import CheckpointState, checkpoint_name, save_checkpoint
from mt_cli.artefacts.checkpoints import (
    checkpoint_names,
    find_checkpoint,
    named_checkpoint,
    place_of_checkpoint,
    read_pointer,
    remove_unused_checkpoints,
    write_pointer,
)
from mt_cli.errors import DataError, UsageError

STEPS = (100, 150, 200)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three checkpoints, of which the first is the best and the third the last."""
    for step in STEPS:
        (tmp_path / "run" / "checkpoints" / checkpoint_name(step) / "inner").mkdir(parents=True)
    write_pointer(tmp_path / "run", "best", step=100)
    write_pointer(tmp_path / "run", "last", step=200)
    return tmp_path / "run"


def all_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# Links


def test_nothing_behind_a_linked_checkpoints_folder_is_deleted(run: Path, tmp_path: Path) -> None:
    (run / "checkpoints").rename(tmp_path / "elsewhere")
    (run / "checkpoints").symlink_to(tmp_path / "elsewhere")
    before = all_below(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"run/checkpoints: a link, and links inside a run .* not followed"):
        remove_unused_checkpoints(run, last=200)
    assert all_below(tmp_path / "elsewhere") == before


def test_nothing_behind_a_linked_checkpoint_is_deleted(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run / "checkpoints" / "step-00000150"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    remove_unused_checkpoints(run, last=200)
    assert "step-00000150: cannot be deleted: Cannot call rmtree on a symbolic link" in caplog.text
    assert all_below(tmp_path / "elsewhere") == ["inner"]


@pytest.mark.parametrize("linked", ["checkpoints", "checkpoints/step-00000100"])
def test_no_checkpoint_is_found_or_placed_behind_a_link(run: Path, tmp_path: Path, linked: str) -> None:
    (run / linked).rename(tmp_path / "elsewhere")
    (run / linked).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=rf"run/{linked}: a link"):
        find_checkpoint(run, "best")
    with pytest.raises(DataError, match=rf"run/{linked}: a link"):
        place_of_checkpoint(run, step=100)
    with pytest.raises(DataError, match=rf"run/{linked}: a link"):
        named_checkpoint(run, "step-00000100")


def test_whole_run_may_be_reached_by_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    remove_unused_checkpoints(tmp_path / "link", last=200)
    assert checkpoint_names(run) == ["step-00000100", "step-00000200"]
    assert find_checkpoint(tmp_path / "link", "best") == tmp_path / "link/checkpoints/step-00000100"


def test_checkpoint_that_cannot_be_deleted_stays_with_a_warning(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str, *, dir_fd: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", name)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    remove_unused_checkpoints(run, last=200)
    assert caplog.messages == [f"{run}/checkpoints/step-00000150: cannot be deleted: Permission denied"]


# Pointers


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_pointer_is_a_real_file(run: Path, kind: str) -> None:
    replace_by(kind, run / "best.txt")
    with pytest.raises(DataError, match=r"best\.txt: (a link|not a regular file)"):
        read_pointer(run, "best")


def test_pointer_to_what_is_gone_is_damage(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step-00000100")
    complaint = r"best\.txt: names step-00000100, which is not in checkpoints; there: step-00000150"
    with pytest.raises(DataError, match=complaint):
        find_checkpoint(run, "best")


def flipped_to_name_another(run: Path, name: str, *, step: int) -> None:
    """Make pointer `name` that of another checkpoint, as one flipped bit may."""
    (run / f"{name}.txt").write_text(f"{checkpoint_name(step)}\n")


def test_last_is_the_newest_whatever_older_one_its_pointer_names(run: Path) -> None:
    flipped_to_name_another(run, "last", step=150)
    assert read_pointer(run, "last") == "step-00000200"
    remove_unused_checkpoints(run, last=200)
    assert checkpoint_names(run) == ["step-00000100", "step-00000200"]


def test_last_is_the_newest_before_its_pointer_is_written(run: Path) -> None:
    (run / "last.txt").unlink()
    assert read_pointer(run, "last") == "step-00000200"
    shutil.rmtree(run / "checkpoints")
    assert read_pointer(run, "last") is None


def test_newer_checkpoint_than_the_one_just_saved_is_unused(run: Path) -> None:
    remove_unused_checkpoints(run, last=150)
    assert checkpoint_names(run) == ["step-00000100", "step-00000150"]


def test_best_that_does_not_call_itself_the_best_is_damage(run: Path) -> None:
    model = torch.nn.Linear(1, 1)
    for step in STEPS:
        state = CheckpointState(step, 1, 0, best_step=100)
        save_checkpoint(place_of_checkpoint(run, step=step), model, tensors={}, state=state)
    assert read_pointer(run, "best") == "step-00000100"
    flipped_to_name_another(run, "best", step=200)
    complaint = r"best\.txt: names step-00000200, which says that step-00000100 is the best"
    for use in (lambda: find_checkpoint(run, "best"), lambda: remove_unused_checkpoints(run, last=200)):
        with pytest.raises(DataError, match=complaint):
            use()
    assert len(checkpoint_names(run)) == len(STEPS)


def test_pointer_that_training_moves_meanwhile_is_read_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(folder: Path, *, below: Path) -> None:
        monkeypatch.undo()
        shutil.rmtree(run / "checkpoints" / "step-00000100")
        write_pointer(run, "best", step=200)

    monkeypatch.setattr("mt_cli.artefacts.checkpoints.check_no_links", meanwhile)
    assert find_checkpoint(run, "best").name == "step-00000200"


def test_checkpoint_that_was_moved_aside_by_a_killed_process_is_found(run: Path) -> None:
    folder = run / "checkpoints" / "step-00000100"
    folder.rename(folder.with_name(".step-00000100.old"))
    assert all_below(find_checkpoint(run, "best")) == ["inner"]


def test_name_of_no_checkpoint_is_wrong_use(run: Path) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint 'newest'; it has best, last, step-00000100"):
        find_checkpoint(run, "newest")


# Named by others


@pytest.mark.parametrize(
    "name",
    ["best", "..", "step-1", "step-00000300", "step-00000100\n", "step-\0", "step-" + "1" * 5000],
    ids=["pointer", "above", "short", "not there", "line end", "NUL", "long"],
)
def test_named_checkpoint_is_one_that_is_there(run: Path, name: str) -> None:
    assert named_checkpoint(run, "step-00000100") == run / "checkpoints" / "step-00000100"
    with pytest.raises(DataError):
        named_checkpoint(run, name)


def test_named_checkpoint_puts_nothing_back(run: Path) -> None:
    aside = run / "checkpoints" / ".step-00000100.old"
    (run / "checkpoints" / "step-00000100").rename(aside)
    with pytest.raises(DataError, match="no checkpoint"):
        named_checkpoint(run, "step-00000100")
    assert aside.is_dir()
