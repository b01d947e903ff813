"""The git commit that the package is run from, where it is run from a checkout.

Asks git; knows nothing of what is made with the package.
"""

import subprocess
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
TIMEOUT_S = 10.0


def describe_checkout(package: Path = PACKAGE) -> dict[str, str | bool]:
    """`commit`, and whether the files of `package` differ from it (`commit_modified`).

    Empty where git is missing or does not track the package, as when it was installed.
    """
    # Without this question, an environment inside somebody's repository would name that repository's commit.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {}
    commit = _git(package, "rev-parse", "HEAD")
    changes = _git(package, "status", "--porcelain", "--", ".")
    if commit is None or changes is None:
        return {}
    return {"commit": commit, "commit_modified": bool(changes)}


def _git(folder: Path, *args: str) -> str | None:
    """What git prints in `folder`; None if it fails."""
    command = ["git", "--no-optional-locks", *args]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
