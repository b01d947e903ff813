"""`scripts/torture`: the injector strikes as told, what no command may do is caught, and --quick
survives.
"""

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from malformed import malformations
from torture import (
    BrokenPromiseError,
    Case,
    Fault,
    Site,
    Strike,
    check_lines,
    hostile_lines,
    spread,
    try_all,
)

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "torture.py"
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def torture(*args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPT), "--jobs", "1", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    case = Case(tmp_path / "case")
    case.folder.mkdir()
    return case


def save() -> None:
    """Six calls that change files."""
    Path("folder").mkdir()  # 1
    with Path("folder/file").open("wb") as file:  # 2
        file.write(b"0123456789")  # 3: written when it is flushed
        file.flush()
        os.fsync(file.fileno())  # 4
    Path("folder/file").replace("folder/other")  # 5
    Path("folder/more").write_text("x")  # 6, 7


def files_of(case: Case) -> dict[str, str]:
    return {path.name: path.read_text() for path in case.folder.glob("folder/*")}


def test_each_call_that_changes_files_counts(case: Case) -> None:
    ended = case.fork(save)
    assert (ended.code, ended.calls, ended.struck) == (0, 7, "")


@pytest.mark.parametrize(
    ("what", "at", "left"),
    [
        ("kill before", 1, {}),
        ("kill after", 2, {"file": ""}),
        ("kill midst", 3, {"file": "01234"}),
        ("kill after", 3, {"file": "0123456789"}),
        ("kill before", 5, {"file": "0123456789"}),
        ("kill after", 5, {"other": "0123456789"}),
    ],
)
def test_kill_leaves_what_was_done_until_then(
    case: Case, what: str, at: int, left: dict[str, str]
) -> None:
    ended = case.fork(save, strike=Strike(what, at))
    assert ended.code == -signal.SIGKILL
    assert ended.struck
    assert files_of(case) == left


@pytest.mark.parametrize(
    ("what", "error", "left"),
    [
        ("full disk from", errno.ENOSPC, "file"),
        ("broken disk from", errno.EIO, "file"),
        ("short write, then full disk from", errno.ENOSPC, "other"),
    ],
)
def test_broken_disk_fails_the_call_and_all_that_follow(
    case: Case, what: str, error: int, left: str
) -> None:
    def work() -> None:
        try:
            save()
        except OSError as first:
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                Path("another").mkdir()
            raise SystemExit(first.errno) from first

    assert case.fork(work, strike=Strike(what, 5)).code == error
    assert files_of(case) == {left: "0123456789"}


def test_short_write_writes_half(case: Case) -> None:
    case.fork(save, strike=Strike("short write, then full disk from", 3))
    assert files_of(case) == {"file": "01234"}


def test_signal_comes_at_the_call(case: Case) -> None:
    ended = case.fork(save, strike=Strike("SIGTERM at", 5))
    assert ended.code == -signal.SIGTERM
    assert files_of(case) == {"file": "0123456789"}


def test_calls_elsewhere_do_not_count(case: Case) -> None:
    assert case.fork(lambda: (case.beside / "more.txt").write_text("x")).calls == 0


def test_child_that_hangs_is_killed_at_the_limit(case: Case) -> None:
    assert case.fork(signal.pause, time_limit_s=0.2).is_hang


def test_memory_is_what_the_child_adds(case: Case) -> None:
    ballast = bytearray(os.urandom(1 << 20)) * 100
    assert 100 < case.fork(lambda: bytearray(os.urandom(1 << 20)) * 100).peak_mb < 150
    assert case.fork(lambda: None).peak_mb < 20 < len(ballast)


def failed(tmp_path: Path, work: Callable[[Case], None]) -> list[str]:
    (tmp_path / "start").mkdir()
    site = Site(tmp_path / "scratch", seed=1, is_quick=True)
    (outcome,) = try_all([Fault("fault", work, tmp_path / "start")], site, jobs=1)
    return list(outcome.failed)


def test_fault_that_is_survived_has_nothing_to_tell(tmp_path: Path) -> None:
    assert failed(tmp_path, lambda case: None) == []


def test_broken_promise_is_told(tmp_path: Path) -> None:
    def work(case: Case) -> None:
        raise BrokenPromiseError("the run is gone")

    assert failed(tmp_path, work) == ["the run is gone"]


def test_change_outside_of_the_folder_is_told(tmp_path: Path) -> None:
    def work(case: Case) -> None:
        (case.beside / "kept.txt").write_text("changed")

    assert failed(tmp_path, work) == ["a file outside of the folder was changed"]


def test_trial_that_breaks_itself_is_no_success(tmp_path: Path) -> None:
    (why,) = failed(tmp_path, lambda case: 1 // 0)  # type: ignore[arg-type]
    assert "ZeroDivisionError" in why


@pytest.mark.parametrize("args", [("inspect", "nothing"), ("--version",)])
def test_command_that_ends_well_or_with_an_error_is_no_broken_promise(
    case: Case, args: tuple[str]
) -> None:
    assert case.call(*args).code in (0, 2)


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        (b"a\nb", "the last line does not end"),
        (b"a\n", "2 lines in, 1 out"),
        (b"a\nb\nc\n", "2 lines in, 3 out"),
        (b"a\n\xff\n", "no UTF-8"),
        (b"a\x1b[2J\n\n", r"\['\\x1b'\] in a translation, from b'x'"),
        ("a\u202e\n\n".encode(), r"\['\\u202e'\] in a translation"),
        (b"a\nb\n", "'b', from nothing"),
    ],
)
def test_bad_translations_are_told(out: bytes, complaint: str) -> None:
    with pytest.raises(BrokenPromiseError, match=complaint):
        check_lines(out, [b"x", b" "])


def test_good_translations_pass() -> None:
    check_lines("Ein Hund.\n\nä 犬\n".encode(), [b"a", b"", b"\xff"])


def test_hostile_lines_are_the_same_for_a_seed_and_hold_damage() -> None:
    lines = hostile_lines(3000, seed=1)
    assert lines == hostile_lines(3000, seed=1) != hostile_lines(3000, seed=2)
    together = b"\n".join(lines)
    assert together.count(b"\n") == 2999
    assert all(
        piece in together
        for piece in (b"\0", b"\r", b"\x1b[2J", b"<s>", b"\xed\xa0\x80", "\u202e".encode())
    )
    assert b"" in lines
    assert max(map(len, lines)) > 1000


def test_malformed_things_have_names_of_their_own() -> None:
    names = [each.name for each in malformations(has_export=True)]
    assert len(set(names)) == len(names) > 150


def test_chosen_calls_are_spread_over_all_of_them() -> None:
    import random

    assert [(call - 1) // 10 for call in spread(100, 10, random.Random(1))] == list(range(10))
    assert spread(3, 10, random.Random(1)) == [1, 2, 3]


@pytest.mark.processes
def test_every_promise_survives_a_few_faults_of_each_family() -> None:
    done = torture("--quick")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| (\d+) \| \d+ \|$", done.stdout, re.MULTILINE)
    assert len(rows) == 7
    assert all(int(tried) == int(survived) > 0 for _, tried, survived in rows)


@pytest.mark.parametrize(
    "args", [("--only", "earthquakes"), ("--only", "lines", "--quick", "--match", "an earthquake")]
)
def test_fault_that_does_not_exist_is_refused(args: tuple[str, ...]) -> None:
    assert torture(*args).returncode == 2
