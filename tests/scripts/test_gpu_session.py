"""`scripts/gpu`: which tasks are run again when it is called again."""

import json
import sys
from pathlib import Path
from time import monotonic

from gpu import SAVING_S, Task, run_session, run_task

WRITE_STATUS = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


def python(code: str, *args: object) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *map(str, args))


def session(folder: Path, state: str) -> dict[str, str]:
    """The states of four tasks: a training that ends in `state`, its scores and two others."""
    run = folder / "run"
    run.mkdir(exist_ok=True)
    train = python(WRITE_STATUS, run / "status.json", json.dumps({"state": state}))
    tasks = [
        Task("failing", python("raise SystemExit('no')")),
        Task("train", train, run=run),
        Task("evaluate", python("print('scored')"), needs=run / "status.json"),
        Task("check", python("print('fine'); print('| engine |')")),
    ]
    outcomes = run_session(tasks, folder / "out", minutes=10)
    return {name: each.state for name, each in outcomes.items()}


def commands_of(folder: Path) -> list[str]:
    log = folder / "out" / "log.txt"
    lines = log.read_text().splitlines()
    log.unlink()
    return [line for line in lines if line.startswith("$ ")]


def test_only_what_has_not_passed_and_scores_of_a_newer_model_are_repeated(tmp_path: Path) -> None:
    states = session(tmp_path, "stopped")
    assert list(states.values()) == ["failed", "out of time", "passed", "passed"]
    first = commands_of(tmp_path)
    assert len(first) == 4
    limit = int(first[1].rpartition(" --time-limit ")[2].removesuffix("s"))
    assert 500 < limit <= 600 - SAVING_S
    states = session(tmp_path, "finished")
    assert {name for name, state in states.items() if state != "passed"} == {"failing"}
    assert len(commands_of(tmp_path)) == 3
    session(tmp_path, "finished")
    assert len(commands_of(tmp_path)) == 1
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| failing | failed | " in table
    assert table.endswith("\ncheck:\n\n| engine |\n")


def test_task_is_left_out_without_what_it_needs_and_ended_at_its_limit(tmp_path: Path) -> None:
    task = Task("bench", python("print('fast')"), needs=tmp_path / "nothing")
    assert run_task(task, tmp_path / "log.txt", monotonic() + 30).state == "left out"
    task = Task("long", python("import time; time.sleep(300)"), limit_s=0.5)
    assert run_task(task, tmp_path / "log.txt", monotonic() + 30).state == "out of time"
