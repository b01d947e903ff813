"""`scripts/gpu`: which steps are run again when it is called again, and how long a training may take."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from gpu_session import session
from gpu_session.plan import SAVING_S, Step, plan
from gpu_session.session import Outcome, run_session

WRITE_STATUS = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


def python(code: str, *args: object) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *map(str, args))


Session = Callable[..., dict[str, Outcome]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Runs a session of four steps: a training that ends in a given state, what needs it, and two others."""
    run = tmp_path / "run"
    run.mkdir()

    def steps(state: str) -> Iterator[Step]:
        yield Step("failing", python("raise SystemExit('no')"))
        train = python(WRITE_STATUS, run / "status.json", f'{{"state": "{state}"}}')
        yield Step("train", train, least_s=SAVING_S, run=run)
        yield Step("evaluate", python("print('scored')"), needs=(run / "status.json",))
        yield Step("check", python("print('fine')"), needs=(tmp_path,))

    def run_once(state: str = "finished", *, minutes: float = 10.0) -> dict[str, Outcome]:
        monkeypatch.setattr(session, "plan", lambda *_, **__: steps(state))
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


def test_step_that_needs_more_time_than_is_left_is_left_out(tmp_path: Path) -> None:
    outcome = session._run(
        Step("bench", python("print('fast')"), least_s=60), tmp_path / "log.txt", monotonic() + 30
    )
    assert (outcome.state, outcome.last_line) == ("left out", "too little time is left")
    assert not (tmp_path / "log.txt").exists()


def test_table_is_there_as_soon_as_a_step_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / session.TABLE
    steps = [
        Step("first", python("print('fine')")),
        Step("second", python("import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text())", place)),
    ]
    monkeypatch.setattr(session, "plan", lambda *_, **__: iter(steps))
    run_session(tmp_path, "cpu", minutes=1, is_quick=True)
    assert "| first | passed |" in (tmp_path / "log.txt").read_text()
    place.unlink()
    run_session(tmp_path, "cpu", minutes=1, is_quick=True)
    assert "| second | passed |" in place.read_text(), "all had passed before"


def test_what_a_step_came_to_stays_where_no_time_is_left_to_repeat_it(call: Session) -> None:
    assert call("stopped")["failing"].last_line == "no"
    later = call("stopped", minutes=0)["failing"]
    assert (later.state, later.last_line) == ("failed", "no")


@pytest.mark.parametrize("is_quick", [True, False])
def test_commands_of_the_plan_need_nothing_that_no_step_makes(tmp_path: Path, is_quick: bool) -> None:
    steps = list(plan(tmp_path, "cpu", is_quick=is_quick))
    trained = [step.run for step in steps if step.run is not None]
    made_before = [Path("data/prepared")]
    for step in steps:
        assert all(any(path.is_relative_to(made) for made in made_before) for path in step.needs), step.name
        made_before += [run for run in trained if run == step.run]
    assert len({step.name for step in steps}) == len(steps)
