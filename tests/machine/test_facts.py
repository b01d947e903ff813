"""The commit in env.json: that of the package's own repository, and of no other."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mt_cli.machine.facts import describe_checkout

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in a repository at `tmp_path`, which has a package."""

    def run(*args: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *identity, *args], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("one = 1\n")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "one")
    return run


def test_commit_of_the_package_is_named(git: Git, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("outside of the package\n")
    head = git("rev-parse", "HEAD")
    assert describe_checkout(tmp_path / "package") == {"commit": head, "commit_modified": False}


@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_package_that_was_changed_is_said_to_be(git: Git, tmp_path: Path, name: str) -> None:
    (tmp_path / "package" / name).write_text("two = 2\n")
    assert describe_checkout(tmp_path / "package")["commit_modified"] is True


def test_package_installed_inside_of_another_repository_has_no_commit(
    git: Git, tmp_path: Path
) -> None:
    installed = tmp_path / "environment" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    assert describe_checkout(installed) == {}


def test_package_without_git_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_checkout() == {}
