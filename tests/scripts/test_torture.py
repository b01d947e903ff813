"""`scripts/torture`: a few faults of each family are survived, and one that is not is reported."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torture
from torture import BrokenPromiseError, Case, Fault, Site

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "torture.py"


@pytest.mark.processes
def test_a_few_faults_of_each_family_are_survived() -> None:
    command = [sys.executable, str(SCRIPT), "--jobs", "1", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^([a-z ]+): (\d+) of (\d+) survived", done.stdout, re.MULTILINE)
    assert [family for family, _, _ in rows] == ["kills", "broken disks", "resumes", "flips"]
    assert all(int(survived) == int(tried) > 0 for _, survived, tried in rows)


def break_promise(case: Case) -> None:
    raise BrokenPromiseError("the run is gone")


def keep_promise(case: Case) -> None:
    assert (case.folder / "file").exists()


def test_broken_promise_is_reported_with_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = tmp_path / "start"
    start.mkdir()
    (start / "file").touch()
    site = Site(tmp_path / "scratch", start, seed=3, is_quick=False)
    faults = [Fault("good", keep_promise, start), Fault("bad one", break_promise, start)]
    assert torture.torture("kills", faults, site, jobs=1) == 1
    out = capsys.readouterr().out
    assert "kills: bad one: the run is gone" in out
    assert "scripts/torture --seed 3 --only kills --match 'bad one'" in out
    assert "kills: 1 of 2 survived" in out
