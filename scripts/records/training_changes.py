"""Changes of the code after which a config trains another model, and which commits are older than them.

Add a change if a training of the same config and seed, on the same machine, gives another model than before
by more than rounding. Leave out what concerns only keys that no published config sets.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainingChange:
    """A change of what training does."""

    commit: str
    what: str
    """A sentence."""


TRAINING_CHANGES = (
    TrainingChange(
        "2de5586f6b513070e1733f0610f95c7d80379f1f",
        "Batches come in few shapes: other pairs stand together, with other draws of dropout.",
    ),
    TrainingChange(
        "1923bddcff3db795b5014c287e13801a6cfa078d",
        "The narrower side of a batch is one rung of widths below the wider at most.",
    ),
    TrainingChange(
        "079ed290ead9c1a4831ff9068908aa631b93885a",
        "Pairs of equal widths are sorted otherwise before they are put into batches.",
    ),
)


def missed_changes(commit: str, root: Path) -> tuple[TrainingChange, ...] | None:
    """The changes that `commit` is older than; None where the history in `root` does not tell."""
    known = [_is_ancestor(change.commit, commit, root) for change in TRAINING_CHANGES]
    if None in known:
        return None
    return tuple(change for change, is_in in zip(TRAINING_CHANGES, known, strict=True) if not is_in)


def is_shallow(root: Path) -> bool:
    """Whether the history in `root` is cut off, as in a clone with a depth."""
    return _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() != "false"


def full_commit(name: str, root: Path) -> str | None:
    """The whole hash of the commit that `name` means in `root`; None if there is none."""
    done = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return done.stdout.strip() or None


def _is_ancestor(change: str, commit: str, root: Path) -> bool | None:
    code = _git(root, "merge-base", "--is-ancestor", change, commit).returncode
    if code == 0:
        return True
    # In a history that is cut off, an ancestor may lie beyond the cut.
    return None if code != 1 or is_shallow(root) else False


def _git(root: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False)
