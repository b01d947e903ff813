"""For the tests of scripts/results: a small repository, an evaluated run of it, its record, and scored lines.

A plugin of all tests, so what is slow to load is loaded late.
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from damage import change_json
from workspace import Workspace

if TYPE_CHECKING:
    from records.record import Record
    from records.sentence_statistics import Counts

__all__ = ["HYPS", "OTHERS", "REFS", "change_json", "counts", "git"]

HYPS = [f"a man {verb} in the {place} ." for verb in ("sleeps", "runs", "sits") for place in "abcdefgh"]
REFS = [f"a man {verb} in a {place} ." for verb in ("sleeps", "walks", "sits") for place in "abcdefgh"]
OTHERS = [f"one man {verb} in a {place} !" for verb in ("sleeps", "walks", "sat") for place in "abcdefgh"]


def git(folder: Path, *args: object) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *identity, *map(str, args)], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def counts(hyps: list[str]) -> "Counts":
    """BLEU's counts of lines that stand beside `REFS`."""
    from records.sentence_statistics import statistics_of

    return statistics_of(hyps, REFS, lowercase=False)


@pytest.fixture(scope="session")
def evaluated_run(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two evaluations, to be left as it is."""
    run = workspace.copy_run(tmp_path_factory.mktemp("evaluated") / "tiny")
    for search in ([], ["--beam-size", 2, "--length-penalty", 0.5]):
        outcome = workspace.call("evaluate", run, "--quiet", *search)
        assert outcome.code == 0, outcome.err
    return run


@pytest.fixture
def repository(workspace: Workspace, tmp_path: Path) -> Path:
    """A repository with a config and a page, and one commit."""
    from records.page import BEGIN, END, PAGE

    folder = tmp_path / "repository"
    (folder / "configs").mkdir(parents=True)
    (folder / PAGE).parent.mkdir()
    shutil.copy(workspace.folder / "tiny.toml", folder / "configs" / "tiny.toml")
    page = f"# Results\n\n{BEGIN}\n\nold\n\n{END}\n\nMore.\n"
    (folder / PAGE).write_text(page, encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "one")
    return folder


@pytest.fixture
def own_run(evaluated_run: Path, repository: Path, tmp_path: Path) -> Path:
    """A copy of the evaluated run, as if it had been trained at the commit of `repository`."""
    place = tmp_path / "tiny"
    shutil.copytree(evaluated_run, place)
    change_json(place / "env.json", commit=git(repository, "rev-parse", "HEAD"), commit_modified=False)
    return place


@pytest.fixture
def record(own_run: Path, repository: Path) -> "Record":
    """What is kept of the run."""
    from records.taking import take_record

    return take_record(own_run, root=repository)


@pytest.fixture
def history(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Commits before, of and after a change of training."""
    from records.training_changes import TrainingChange

    commits = {"before": git(repository, "rev-parse", "HEAD")}
    for name in ("change", "after"):
        git(repository, "commit", "--quiet", "--allow-empty", "--message", name)
        commits[name] = git(repository, "rev-parse", "HEAD")
    changes = (TrainingChange(commits["change"], "Batches are new."),)
    monkeypatch.setattr("records.training_changes.TRAINING_CHANGES", changes)
    return commits
