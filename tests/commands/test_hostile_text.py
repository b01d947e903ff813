"""Files that somebody else has written, and names that no terminal should see, through whole
commands.
"""

import json
import os
from pathlib import Path

import pytest
from damage import change_json
from workspace import Outcome, Workspace

ESCAPE = "\x1b]0;owned\x07"
SHOWN = "\\x1b]0;owned\\x07"


def assert_harmless(outcome: Outcome) -> None:
    for said in (outcome.text, outcome.err):
        assert said.replace("\n", "").replace("\t", "").isprintable(), ascii(said)


@pytest.fixture
def hostile_run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run with terminal commands in its status and its environment."""
    run = workspace.copy_run(tmp_path / "run")
    for name in ("status.json", "env.json"):
        change_json(run / name, **{f"key{ESCAPE}": f"value{ESCAPE}\u202e"})
    return run


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_inspect_shows_what_others_wrote_without_obeying_it(
    workspace: Workspace, hostile_run: Path, flags: tuple[str, ...]
) -> None:
    outcome = workspace.call("inspect", hostile_run, *flags)
    assert outcome.code == 0, outcome.err
    assert_harmless(outcome)
    if flags:
        found = json.loads(outcome.out)
        assert found["run"][f"key{ESCAPE}"] == f"value{ESCAPE}\u202e"
    else:
        assert outcome.text.count(SHOWN) >= 4


def test_training_in_a_folder_whose_name_is_no_utf8_says_so_without_a_traceback(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / os.fsdecode(b"bad\xff\x1b[2J")
    outcome = workspace.execute("train", "tiny.toml", "--run", run, "--max-steps", 1)
    assert outcome.code == 0, outcome.err
    assert outcome.out == os.fsencode(run) + b"\n"
    assert "Traceback" not in outcome.err
    assert "Logging error" not in outcome.err
    assert "bad\\udcff\\x1b[2J" in outcome.err
    assert b"bad\\udcff" in run.joinpath("train.log").read_bytes()
    told = workspace.execute(
        "train", "tiny.toml", "--run", run, "--max-steps", 1, "--resume", "--json"
    )
    assert json.loads(told.out)["folder"] == str(run)
