"""What is reported while a model is trained, on a terminal that may go away."""

import json
import os
from pathlib import Path

import pexpect
import pytest
from workspace import MT_CLI, TIMEOUT_S, Workspace

pytestmark = pytest.mark.processes


def test_a_lost_terminal_stops_a_training_and_saves_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["train", "tiny.toml", "--run", str(run), "--set", "training.max_epochs=500"]
    child = pexpect.spawn(
        MT_CLI[0],
        [*MT_CLI[1:], *words],
        cwd=str(workspace.folder),
        timeout=TIMEOUT_S,
        dimensions=(24, 80),
    )
    child.expect("val nll")  # the head of the table of validations: there is a checkpoint
    child.ptyproc.fileobj.close()  # the terminal is gone
    _, ended = os.waitpid(child.pid, 0)
    child.closed = True
    status = json.loads(run.joinpath("status.json").read_text())
    assert (status["state"], os.waitstatus_to_exitcode(ended)) == ("stopped", 129)
    assert run.joinpath("last.txt").read_text().strip() == f"step-{status['step']:08}"
