"""`scripts/gpu`: which tasks are run again when it is called again, and how long a training may take."""

import fcntl
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from gpu_session import session
from gpu_session.plan import SAVING_S, Task, plan
from gpu_session.session import Outcome, run_session

from mt_cli.artefacts.json_files import sealed
from mt_cli.errors import DataError, UsageError

WRITE_STATUS = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


def python(code: str, *args: object) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *map(str, args))


Session = Callable[..., dict[str, Outcome]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Runs a session of four tasks: a training that ends in a given state, what needs it, and two others."""
    run = tmp_path / "run"
    run.mkdir()

    def tasks(state: str) -> Iterator[Task]:
        yield Task("failing", python("raise SystemExit('no')"))
        train = python(WRITE_STATUS, run / "status.json", json.dumps(sealed({"step": 1, "state": state})))
        yield Task("train", train, least_s=SAVING_S, run=run)
        yield Task("evaluate", python("print('scored')"), needs=(run / "status.json",))
        yield Task("check", python("print('fine')"), needs=(tmp_path,))

    def run_once(state: str = "finished", *, minutes: float = 10.0) -> dict[str, Outcome]:
        monkeypatch.setattr(session, "plan", lambda *_, **__: tasks(state))
        outcomes = run_session(tmp_path / "out", "cpu", minutes=minutes, is_quick=True)
        return {each.name: each for each in outcomes}

    return run_once


def commands_of(out: Path) -> list[str]:
    log = out / "log.txt"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return [line for line in lines if line.startswith("$ ")]


def test_what_has_passed_is_not_repeated_but_scores_of_a_model_that_was_trained_on_are(
    call: Session, tmp_path: Path
) -> None:
    first = call("stopped")
    assert [each.state for each in first.values()] == ["failed", "out of time", "passed", "passed"]
    assert first["evaluate"].last_line == "scored"
    assert len(commands_of(tmp_path / "out")) == 4

    second = call("finished")
    assert [each.state for each in second.values()] == ["failed", "passed", "passed", "passed"]
    failing, train, evaluate = commands_of(tmp_path / "out")
    assert "SystemExit" in failing
    assert "status.json" in train
    assert "scored" in evaluate

    call("finished")
    (failing,) = commands_of(tmp_path / "out")
    assert "SystemExit" in failing


def test_scores_of_a_model_stay_where_no_time_was_left_to_train_it_further(call: Session) -> None:
    call("stopped")
    later = call("finished", minutes=SAVING_S / 60)
    assert (later["train"].state, later["evaluate"].state) == ("out of time", "passed")


def test_a_training_takes_the_time_that_is_left(call: Session, tmp_path: Path) -> None:
    call("finished", minutes=10)
    (train,) = [each for each in commands_of(tmp_path / "out") if "status.json" in each]
    limit = int(train.rpartition(" --time-limit ")[2].removesuffix("s"))
    assert 500 < limit <= 600 - SAVING_S


def test_task_that_needs_more_time_than_is_left_is_left_out(tmp_path: Path) -> None:
    outcome = session._run(
        Task("bench", python("print('fast')"), least_s=60), tmp_path / "log.txt", monotonic() + 30
    )
    assert (outcome.state, outcome.last_line) == ("left out", "too little time is left")
    assert not (tmp_path / "log.txt").exists()


def test_table_is_there_as_soon_as_a_task_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / session.TABLE
    tasks = [
        Task("first", python("print('fine')")),
        Task("second", python("import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text())", place)),
    ]
    monkeypatch.setattr(session, "plan", lambda *_, **__: iter(tasks))
    run_session(tmp_path, "cpu", minutes=1, is_quick=True)
    assert "| first | passed |" in (tmp_path / "log.txt").read_text()
    place.unlink()
    run_session(tmp_path, "cpu", minutes=1, is_quick=True)
    assert "| second | passed |" in place.read_text(), "all had passed before"


def test_session_of_another_kind_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "plan", lambda *_, **__: iter([Task("check", python("print('fine')"))]))
    run_session(tmp_path, "cpu", minutes=1, is_quick=True)
    with pytest.raises(UsageError, match="holds a session on another device or of other tasks"):
        run_session(tmp_path, "cuda", minutes=1, is_quick=True)
    with pytest.raises(UsageError, match="name another --out"):
        run_session(tmp_path, "cpu", minutes=1, is_quick=False)


def test_damaged_notes_of_a_session_are_an_error_that_says_so(tmp_path: Path) -> None:
    kind = {"device": "cpu", "is_quick": True}
    (tmp_path / session.TASKS).write_text(json.dumps({**kind, "tasks": [{"name": "check"}]}))
    with pytest.raises(DataError, match=r"tasks\.json: not the tasks of a session; remove it"):
        run_session(tmp_path, "cpu", minutes=1, is_quick=True)


def test_tables_of_benches_stand_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = python(
        "print('warm-up'); print('| engine |'); print('| --- |'); print('| ours |'); print('done')"
    )
    monkeypatch.setattr(session, "plan", lambda *_, **__: iter([Task("bench", bench)]))
    run_session(tmp_path, "cpu", minutes=1, is_quick=True)
    assert (tmp_path / session.TABLE).read_text().endswith("\nbench:\n\n| engine |\n| --- |\n| ours |\n")


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = monotonic() + 20
    while not is_so():
        assert monotonic() < deadline, "a process has not come to what it should do, or has not ended"
        sleep(0.01)


def can_be_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


HOLD_A_LOCK = """
import fcntl, subprocess, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
subprocess.Popen(["sleep", "300"], pass_fds=[file.fileno()])
print("held", file=file, flush=True)
time.sleep(300)
"""


def test_signal_ends_the_task_that_runs_and_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"

    def interrupted(*_: object) -> bool:
        wait_until(lambda: lock.exists() and lock.read_text() != "")
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_is_late", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session._run(Task("long", python(HOLD_A_LOCK, lock)), tmp_path / "log.txt", monotonic() + 30)
    wait_until(lambda: can_be_locked(lock))


def test_what_a_task_came_to_stays_where_no_time_is_left_to_repeat_it(call: Session) -> None:
    assert call("stopped")["failing"].last_line == "no"
    later = call("stopped", minutes=0)["failing"]
    assert (later.state, later.last_line) == ("failed", "no")


@pytest.mark.parametrize("is_quick", [True, False])
def test_commands_of_the_plan_need_nothing_that_no_task_makes(tmp_path: Path, is_quick: bool) -> None:
    tasks = list(plan(tmp_path, "cpu", is_quick=is_quick))
    trained = [task.run for task in tasks if task.run is not None]
    made_before = [Path("data/prepared")]
    for task in tasks:
        assert all(any(path.is_relative_to(made) for made in made_before) for path in task.needs), task.name
        made_before += [run for run in trained if run == task.run]
    assert len({task.name for task in tasks}) == len(tasks)
