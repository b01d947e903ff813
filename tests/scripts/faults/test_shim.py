"""The shim and its stand-in: calls are counted, failed, and killed at, below one folder."""

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.shim import build_shim, preloaded

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
PRELUDE = """
import errno, os, sys
from pathlib import Path
from faults.case import Case
from faults.plan import Action, Strike
from faults.shim import find_shim
from faults.stand_in import arm_stand_in
case = Case(Path(sys.argv[1]) / "case", find_shim() or arm_stand_in)
case.folder.mkdir(parents=True)
def work():
    os.mkdir("folder")                          # 1
    with open("folder/file", "wb") as file:     # 2
        file.write(b"0123456789")               # 3, 4: written and synced
        file.flush()
        os.fsync(file.fileno())
    os.replace("folder/file", "folder/other")   # 5
    return 0
"""
Script = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(params=["shim", "stand-in"])
def script(request: pytest.FixtureRequest, library: Path | None, tmp_path: Path) -> Script:
    """Runs Python after the prelude, under the shim or its stand-in, and gives the lines that it prints."""
    if request.param == "shim" and library is None:
        pytest.skip("no C compiler here")

    def run(text: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + text, str(tmp_path)],
            env={**preloaded(library if request.param == "shim" else None), "PYTHONPATH": str(SCRIPTS)},
            cwd=SCRIPTS.parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


def test_each_call_that_changes_files_counts(script: Script) -> None:
    assert script("print(case.run(work).seen.calls)") == ["5"]


@pytest.mark.parametrize(
    ("action", "at", "content"),
    [
        ("KILL_BEFORE", 1, None),
        ("KILL_AFTER", 2, ("file", "")),
        ("KILL_BEFORE", 3, ("file", "")),
        ("KILL_MIDST", 3, ("file", "01234")),
        ("KILL_AFTER", 3, ("file", "0123456789")),
        ("KILL_BEFORE", 5, ("file", "0123456789")),
        ("KILL_AFTER", 5, ("other", "0123456789")),
    ],
)
def test_kill_leaves_what_was_done_until_then(
    script: Script, tmp_path: Path, action: str, at: int, content: tuple[str, str] | None
) -> None:
    (line,) = script(
        f"ended = case.run(work, strike=Strike(Action.{action}, {at}))\n"
        "print(ended.was_struck_dead, ended.seen.calls)"
    )
    assert line == f"True {at}"
    folder = tmp_path / "case" / "inside" / "folder"
    found = [(path.name, path.read_text()) for path in folder.glob("*")]
    assert found == ([] if content is None else [content])


def test_failed_call_has_the_errno_and_changes_nothing(script: Script, tmp_path: Path) -> None:
    catching = """
def catch():
    try:
        work()
    except OSError as error:
        return error.errno
    return 0
for action in (Action.FAIL_ONCE, Action.FAIL_ON):
    ended = case.run(catch, strike=Strike(action, 2, errno.ENOSPC))
    print(ended.code, ended.seen.struck.split("/")[-1])
    os.rmdir(case.folder / "folder")
"""
    assert script(catching) == [f"{errno.ENOSPC} file"] * 2
    assert list((tmp_path / "case" / "inside").iterdir()) == []


def test_disk_that_stays_full_fails_every_call_after(script: Script) -> None:
    counting = """
def count():
    failed = 0
    for name in "abcd":
        try:
            os.mkdir(name)
        except OSError:
            failed += 1
    return failed
for action in (Action.FAIL_ONCE, Action.FAIL_ON):
    print(case.run(count, strike=Strike(action, 2, errno.EIO)).code)
    for path in case.folder.iterdir(): path.rmdir()
"""
    assert script(counting) == ["1", "3"]


def test_write_outside_of_the_folder_is_noted_and_never_counts(script: Script, tmp_path: Path) -> None:
    through_link = """
case.folder.joinpath("link").symlink_to("..")
def leave():
    with open("link/outside", "wb") as file:
        file.write(b"x")
    return 0
seen = case.run(leave).seen
print(seen.calls, seen.elsewhere.split()[1])
"""
    assert script(through_link) == [f"0 {tmp_path / 'case' / 'outside'}"]


def test_broken_link_that_a_file_is_made_through_leads_outside(script: Script, tmp_path: Path) -> None:
    through_link = """
case.folder.joinpath("link").symlink_to("../outside")
def leave():
    open("link", "wb").close()
    return 0
print(case.run(leave).seen.elsewhere.split()[1])
"""
    assert script(through_link) == [str(tmp_path / "case" / "outside")]


def test_nothing_is_built_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_shim(tmp_path) is None
