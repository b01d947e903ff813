"""`scripts/gpu`: which tasks are run again when it is called again, and how long a training may
take.
"""

import fcntl
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import gpu
import pytest
from gpu import SAVING_S, Outcome, Task, plan, run_session, run_task

WRITE_STATUS = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


def python(code: str, *args: object) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *map(str, args))


Session = Callable[..., dict[str, Outcome]]


@pytest.fixture
def call(tmp_path: Path) -> Session:
    """Runs a session of four tasks: a training that ends in a given state, what needs it, and two
    others.
    """
    run = tmp_path / "run"
    run.mkdir()

    def call(state: str = "finished", *, minutes: float = 10.0) -> dict[str, Outcome]:
        train = python(WRITE_STATUS, run / "status.json", json.dumps({"step": 1, "state": state}))
        tasks = [
            Task("failing", python("raise SystemExit('no')")),
            Task("train", train, run=run),
            Task("evaluate", python("print('scored')"), needs=run / "status.json"),
            Task("check", python("print('fine'); print('| engine |')")),
        ]
        return run_session(tasks, tmp_path / "out", minutes=minutes)

    return call


def commands_of(out: Path) -> list[str]:
    log = out / "log.txt"
    lines = log.read_text().splitlines()
    log.unlink()
    return [line for line in lines if line.startswith("$ ")]


def test_what_has_passed_is_not_repeated_but_scores_of_a_model_that_was_trained_on_are(
    call: Session, tmp_path: Path
) -> None:
    first = call("stopped")
    assert [each.state for each in first.values()] == ["failed", "out of time", "passed", "passed"]
    assert first["evaluate"].last_line == "scored"
    assert len(commands_of(tmp_path / "out")) == 4
    second = call("finished")
    states = {name: each.state for name, each in second.items()}
    assert states == {
        "failing": "failed",
        "train": "passed",
        "evaluate": "passed",
        "check": "passed",
    }
    failing, train, evaluate = commands_of(tmp_path / "out")
    assert ("SystemExit" in failing, "status.json" in train, "scored" in evaluate) == (
        True,
        True,
        True,
    )
    call("finished")
    assert len(commands_of(tmp_path / "out")) == 1


def test_scores_of_a_model_stay_where_no_time_was_left_to_train_it_further(call: Session) -> None:
    call("stopped")
    later = call("finished", minutes=SAVING_S / 60)
    assert (later["train"].state, later["evaluate"].state) == ("out of time", "passed")


def test_what_a_task_came_to_stays_where_no_time_is_left_to_repeat_it(call: Session) -> None:
    call("stopped")
    later = call("stopped", minutes=0)["failing"]
    assert (later.state, later.last_line) == ("failed", "no")


def test_training_takes_the_time_that_is_left(call: Session, tmp_path: Path) -> None:
    call("finished", minutes=10)
    (train,) = [each for each in commands_of(tmp_path / "out") if "status.json" in each]
    limit = int(train.rpartition(" --time-limit ")[2].removesuffix("s"))
    assert 500 < limit <= 600 - SAVING_S


def test_table_has_each_task_and_what_it_printed_as_a_table(call: Session, tmp_path: Path) -> None:
    call()
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| failing | failed | " in table
    assert table.endswith("\ncheck:\n\n| engine |\n")


def test_task_whose_needs_are_missing_is_left_out(tmp_path: Path) -> None:
    task = Task("bench", python("print('fast')"), needs=tmp_path / "nothing")
    outcome = run_task(task, tmp_path / "log.txt", monotonic() + 30)
    assert (outcome.state, outcome.last_line) == ("left out", f"{tmp_path / 'nothing'} is missing")


def test_task_is_ended_at_its_limit(tmp_path: Path) -> None:
    task = Task("long", python("import time; time.sleep(300)"), limit_s=0.5)
    assert run_task(task, tmp_path / "log.txt", monotonic() + 30).state == "out of time"


HOLD_A_LOCK = """
import fcntl, subprocess, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
subprocess.Popen(["sleep", "300"], pass_fds=[file.fileno()])
time.sleep(300)
"""


def test_signal_ends_the_task_that_runs_and_all_that_it_has_started(tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_task(
                Task("long", python(HOLD_A_LOCK, lock)), tmp_path / "log.txt", monotonic() + 30
            )
    finally:
        signal.signal(signal.SIGALRM, before)
    deadline = monotonic() + 20
    with lock.open() as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert monotonic() < deadline, "a process has not ended"
                sleep(0.01)


@pytest.mark.parametrize("is_quick", [True, False])
def test_commands_of_the_plan_need_nothing_that_no_task_makes(
    tmp_path: Path, is_quick: bool
) -> None:
    tasks = list(plan(tmp_path, "cpu", is_quick=is_quick))
    made = [Path("data/prepared"), *(task.run for task in tasks if task.run)]
    needed = [task.needs for task in tasks if task.needs != Path()]
    assert all(any(path.is_relative_to(place) for place in made) for path in needed)
    assert len({task.name for task in tasks}) == len(tasks)
    assert gpu.READY_MODEL.exists()
