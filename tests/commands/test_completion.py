"""What Tab offers, asked for in the way that the shells' scripts do."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner
from workspace import Workspace

from mt_cli.cli import app
from mt_cli.config import Config

SECONDS = 0.5


def offered(words: str) -> list[str]:
    """Completions of the last of `words`, which is what follows the last space."""
    env = {
        "COMP_WORDS": f"mt-cli {words}",
        "COMP_CWORD": str(len(f"{words}|".split(" "))),
        "_MT_CLI_COMPLETE": "complete_bash",
    }
    result = CliRunner().invoke(app, [], env=env, prog_name="mt-cli")
    assert result.exit_code == 0, result.output
    return result.output.split()


@pytest.fixture
def inside(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(workspace.folder)
    return workspace.folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ev", ["evaluate"]),
        ("train tiny.toml --ti", ["--time-limit"]),
        ("translate runs/tiny --backend ", ["torch", "scratch"]),
        ("evaluate ", ["runs/tiny"]),
        ("inspect runs/ti", ["runs/tiny"]),
        ("inspect corpus/", []),
        ("train ", ["tiny.toml"]),
        ("train ru", []),
        ("evaluate runs/tiny --split ", ["train", "val", "test"]),
        ("evaluate runs/tiny --split te", ["test"]),
        ("evaluate corpus --split ", []),
        ("translate runs/tiny --checkpoint be", ["best"]),
        ("train tiny.toml --set decoding.max_len", ["decoding.max_len_factor=", "decoding.max_len_extra="]),
    ],
)
def test_tab_offers(inside: Path, words: str, expected: list[str]) -> None:
    assert offered(words) == expected


def test_every_key_of_a_config_is_offered(inside: Path) -> None:
    keys = [f"{name}.{key}=" for name, section in iter(Config()) for key in type(section).model_fields]
    assert offered("prepare tiny.toml --set ") == keys


def test_checkpoints_are_those_of_the_named_run(inside: Path, workspace: Workspace) -> None:
    folders = sorted(path.name for path in workspace.run.glob("checkpoints/step-*"))
    assert offered("translate runs/tiny --checkpoint step") == folders


@pytest.mark.parametrize("words", ["translate ", "evaluate runs/tiny --split ", "train tiny.toml --set "])
def test_tab_is_answered_at_once(inside: Path, words: str) -> None:
    begin = time.process_time()
    offered(words)
    assert time.process_time() - begin < SECONDS
