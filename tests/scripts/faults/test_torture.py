"""`scripts/torture --quick`: some faults of each family, and every one of them survived."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from faults.kills import spread
from faults.torture import FAMILIES

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


def torture(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "faults.torture", "--jobs", "1", *args],
        env={**os.environ, "PYTHONPATH": f"{SCRIPTS.parent}{os.pathsep}{SCRIPTS}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.processes
def test_every_promise_survives_a_few_faults_of_each_family() -> None:
    done = torture("--quick", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["promises"]
    assert {row["family"] for row in rows} == set(FAMILIES)
    assert [row for row in rows if not row["tried"] or row["survived"] != row["tried"]] == []


def test_family_that_does_not_exist_is_refused() -> None:
    done = torture("--only", "earthquakes")
    assert done.returncode == 2
    assert "earthquakes" in done.stderr


@pytest.mark.processes
def test_name_that_no_fault_has_is_refused() -> None:
    done = torture("--only", "lines", "--match", "an earthquake")
    assert done.returncode == 2
    assert "no fault is called 'an earthquake'" in done.stderr


def test_chosen_calls_are_spread_over_all_of_them() -> None:
    chosen = spread(100, 10, random.Random(1))
    assert [(call - 1) // 10 for call in chosen] == list(range(10))
    assert spread(3, 10, random.Random(1)) == [1, 2, 3]
