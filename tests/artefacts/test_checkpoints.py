"""The checkpoints of a run: found by name, deleted when nobody needs them, and never through a link."""

import shutil
from pathlib import Path

import pytest

from mt_cli.errors import DataError, UsageError
from mt_cli.runs.checkpoint import (
    checkpoint_name,
    find_checkpoint,
    named_checkpoint,
    read_pointer,
    remove_unused_checkpoints,
    write_pointer,
)
from mt_cli.runs.run import checkpoint_names

STEPS = (100, 150, 200)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three checkpoints, of which the first is the best and the third the last."""
    for step in STEPS:
        (tmp_path / "run" / "checkpoints" / checkpoint_name(step) / "inner").mkdir(parents=True)
    write_pointer(tmp_path / "run", "best", step=100)
    write_pointer(tmp_path / "run", "last", step=200)
    return tmp_path / "run"


def test_pointer_to_what_is_gone_is_damage(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step-00000100")
    complaint = r"best\.txt: names step-00000100, which is not in checkpoints; there: step-00000150"
    with pytest.raises(DataError, match=complaint):
        find_checkpoint(run, "best")


def test_last_is_the_newest_before_its_pointer_is_written(run: Path) -> None:
    (run / "last.txt").unlink()
    assert read_pointer(run, "last") == "step-00000200"
    shutil.rmtree(run / "checkpoints")
    assert read_pointer(run, "last") is None


def test_newer_checkpoint_than_the_one_just_saved_is_unused(run: Path) -> None:
    remove_unused_checkpoints(run, last=150)
    assert checkpoint_names(run) == ["step-00000100", "step-00000150"]


def test_name_of_no_checkpoint_is_wrong_use(run: Path) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint 'newest'; it has best, last, step-00000100"):
        find_checkpoint(run, "newest")


@pytest.mark.parametrize(
    "name",
    ["best", "..", "step-1", "step-00000300", "step-00000100\n", "step-\0", "step-" + "1" * 5000],
    ids=["pointer", "above", "short", "not there", "line end", "NUL", "long"],
)
def test_named_checkpoint_is_one_that_is_there(run: Path, name: str) -> None:
    assert named_checkpoint(run, "step-00000100") == run / "checkpoints" / "step-00000100"
    with pytest.raises(DataError):
        named_checkpoint(run, name)
