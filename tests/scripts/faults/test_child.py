"""A forked child: its streams, its exit code, its end at the time limit, and its memory."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.child import Ended, forked
from faults.plan import Plan, Strike

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
"""Workers of pytest have a thread that the child does without."""


@pytest.fixture
def fork(tmp_path: Path) -> Callable[..., Ended]:
    def run(work: Callable[[], int], *, stdin: bytes = b"", time_limit_s: float = 60.0) -> Ended:
        plan = Plan(Strike(), folder=tmp_path)
        streams = tmp_path / "streams"
        return forked(
            work,
            folder=tmp_path,
            streams=streams,
            plan=plan,
            arm=lambda _: None,
            stdin=stdin,
            time_limit_s=time_limit_s,
        )

    return run


def test_streams_and_exit_code_are_the_childs_own(fork: Callable[..., Ended]) -> None:
    def shout() -> int:
        print(sys.stdin.read().upper())
        print("aside", file=sys.stderr)
        return 3

    ended = fork(shout, stdin=b"hund")
    assert (ended.code, ended.out, ended.err) == (3, b"HUND\n", "aside\n")


def test_child_works_in_its_folder(fork: Callable[..., Ended], tmp_path: Path) -> None:
    def touch() -> int:
        Path("here").touch()
        return 0

    fork(touch)
    assert (tmp_path / "here").exists()
    assert Path.cwd() != tmp_path


def test_child_that_fails_ends_with_1_and_leaves_the_parent_alone(fork: Callable[..., Ended]) -> None:
    assert fork(lambda: 1 // 0).code == 1


def test_child_that_is_killed_says_by_which_signal(fork: Callable[..., Ended]) -> None:
    def end() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    ended = fork(end)
    assert (ended.code, ended.is_hang, ended.was_struck_dead) == (-signal.SIGKILL, False, False)


def test_child_that_hangs_is_killed_at_the_limit(fork: Callable[..., Ended]) -> None:
    def wait() -> int:
        signal.pause()
        return 0

    ended = fork(wait, time_limit_s=0.2)
    assert ended.is_hang
    assert ended.code == -signal.SIGKILL


def test_memory_is_what_the_child_adds(fork: Callable[..., Ended]) -> None:
    ballast = bytearray(os.urandom(1 << 20)) * 300  # 300 MB of the parent's

    def take() -> int:
        return len(bytearray(os.urandom(1 << 20)) * 100) // len(ballast)

    assert 100 < fork(take).peak_mb < 150
    assert fork(lambda: 0).peak_mb < 20


def test_child_obeys_ctrl_c_even_where_the_parent_ignores_it(fork: Callable[..., Ended]) -> None:
    def interrupt() -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return 130
        return 0

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert fork(interrupt).code == 130
    finally:
        signal.signal(signal.SIGINT, before)
