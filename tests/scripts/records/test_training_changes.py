"""Which commits are older than a change of training."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from recorded import git
from records.training_changes import is_shallow, missed_changes


@pytest.mark.parametrize(("commit", "num_missed"), [("before", 1), ("change", 0), ("after", 0)])
def test_commit_is_older_than_a_change_it_does_not_contain(
    repository: Path, history: Mapping[str, str], commit: str, num_missed: int
) -> None:
    missed = missed_changes(history[commit], repository)
    assert missed is not None
    assert len(missed) == num_missed


def test_history_that_is_cut_off_does_not_tell(
    repository: Path, history: Mapping[str, str], tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", clone)
    assert (is_shallow(repository), is_shallow(clone)) == (False, True)
    assert missed_changes(history["after"], clone) is None
    assert missed_changes("0" * 40, repository) is None
