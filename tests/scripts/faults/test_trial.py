"""Trials: what a command must never do is caught, and told as the outcome of its fault."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.case import BrokenPromiseError, Case, Site, check_manners
from faults.child import Ended
from faults.plan import Plan, Seen
from faults.trial import Fault, try_faults

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

WELL = Ended(0, b"", "", 1.0, 1.0, 1.0, is_hang=False, seen=Seen(1, "", ""))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "file").write_text("as it was")
    return Site(tmp_path / "template", tmp_path / "scratch", watch_nothing, seed=1, is_quick=True)


def watch_nothing(plan: Plan) -> None:
    pass


def failed(site: Site, work: Callable[[Case], None]) -> tuple[str, ...]:
    (outcome,) = try_faults([Fault(1, "family", "fault", work)], site, jobs=1)
    return outcome.failed


def test_fault_that_is_survived_has_nothing_to_tell(site: Site) -> None:
    assert failed(site, lambda case: None) == ()


def test_broken_promise_is_told(site: Site) -> None:
    def work(case: Case) -> None:
        raise BrokenPromiseError("the run is gone")

    assert failed(site, work) == ("the run is gone",)


def test_file_beside_the_folder_that_changes_is_told(site: Site) -> None:
    def work(case: Case) -> None:
        (case.beside / "kept.txt").write_text("changed")

    assert failed(site, work) == ("a file outside of the folder was changed",)


def test_trial_that_breaks_itself_is_no_success(site: Site) -> None:
    (why,) = failed(site, lambda case: 1 // 0)  # type: ignore[arg-type]
    assert "ZeroDivisionError" in why


def test_trial_that_dies_is_no_success(site: Site) -> None:
    (why,) = failed(site, lambda case: os.kill(os.getpid(), signal.SIGKILL))
    assert why == "the process that tried it died"


def test_case_with_many_faults_counts_them_all(site: Site) -> None:
    def work(case: Case) -> None:
        case.tried = 5
        case.failed += ["the third", "the fourth"]

    (outcome,) = try_faults([Fault(1, "family", "fault", work)], site, jobs=1)
    assert (outcome.tried, outcome.survived) == (5, 3)


def test_each_case_begins_with_the_template_and_leaves_nothing(site: Site) -> None:
    def work(case: Case) -> None:
        content = (case.folder / "file").read_text()
        if content != "as it was":
            raise BrokenPromiseError(content)
        (case.folder / "file").write_text("changed")

    outcomes = list(try_faults([Fault(1, "family", name, work) for name in "abcd"], site, jobs=3))
    assert sorted(outcome.fault for outcome in outcomes) == ["a", "b", "c", "d"]
    assert all(outcome.failed == () for outcome in outcomes)
    assert list(site.scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"err": "Traceback (most recent call last):\n"}, "a traceback"),
        ({"out": b"Traceback"}, "a traceback"),
        ({"code": 1}, "exit code 1"),
        ({"is_hang": True}, "hangs"),
        ({"seen": Seen(1, "", "open64 /etc/passwd")}, "changes a file outside: open64 /etc/passwd"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_no_command_may_do_breaks_a_promise(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(BrokenPromiseError, match=complaint):
        check_manners(Ended(**{**vars(WELL), **changes}), "train")


def test_what_every_command_may_do_breaks_none() -> None:
    check_manners(WELL, "train")
