"""What the GPU path asks of a GPU, measured on pretended CUDA: budgets that a change must not
exceed unseen.

A tensor on the wrong device raises there. What it cannot show, the tests marked `gpu` have to.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="pretended CUDA needs g++")

UPDATES = {
    "scratch, fp32": 479, "scratch, bf16": 491, "scratch, fp16": 495, "torch, bf16": 725, "muon": 630,
}  # fmt: skip
"""Kernels that an update of a model of four and four layers may launch, with R-Drop."""
STEPS = {"greedy": 50, "greedy, bf16": 62, "beam": 80, "sampling": 82, "no repeats": 54}
"""Kernels that a step of a search may launch, with two decoder layers."""
WAITS_OF_A_SEARCH = 16
"""Its start, its end, and two checks of which sentences are finished."""


@pytest.fixture(scope="module")
def measured() -> Mapping[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name("gpu_path.py"))]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", UPDATES)
def test_an_update_launches_few_kernels_and_waits_for_none(
    measured: Mapping[str, Any], kind: str
) -> None:
    update = measured[f"update, {kind}"]
    assert update["waits"] == {}
    assert update["launches"] <= UPDATES[kind]


@pytest.mark.parametrize("kind", ["graph", "muon, graph"])
def test_a_captured_update_is_one_launch_beside_those_that_bring_its_inputs(
    measured: Mapping[str, Any], kind: str
) -> None:
    assert measured[f"update, {kind}"]["waits"] == {}
    assert measured[f"update, {kind}"]["launches"] <= 14


def test_an_update_of_two_batches_waits_for_nothing_either(measured: Mapping[str, Any]) -> None:
    assert measured["update, two batches"]["waits"] == {}


@pytest.mark.parametrize(
    ("backend", "way", "tolerance"),
    [
        ("scratch", "fp32", 1e-5),
        ("scratch", "bf16", 0.01),
        ("scratch", "graphs", 1e-5),
        ("torch", "graphs", 1e-5),
    ],
)
def test_losses_are_those_of_the_cpu(
    measured: Mapping[str, Any], backend: str, way: str, tolerance: float
) -> None:
    losses = measured[f"losses, {backend}, {way}"]
    assert losses["device"] == pytest.approx(losses["cpu"], abs=tolerance)
    assert losses["cpu"][-1] < 0.8 * losses["cpu"][0]
    assert (losses["replays"] > 10) == (way == "graphs"), "too few are captured to show anything"


@pytest.mark.parametrize("search", STEPS)
def test_a_search_launches_few_kernels_waits_seldom_and_finds_what_the_cpu_finds(
    measured: Mapping[str, Any], search: str
) -> None:
    found = measured[search]
    assert found["launches"] <= STEPS[search]
    assert sum(found["waits"].values()) <= WAITS_OF_A_SEARCH
    assert found["device"] == found["cpu"]


def test_a_validation_waits_once(measured: Mapping[str, Any]) -> None:
    assert sum(measured["validation"]["waits"].values()) == 1
    assert measured["validation"]["device"] == pytest.approx(
        measured["validation"]["cpu"], abs=1e-6
    )


def test_what_is_planted_in_an_update_is_found(measured: Mapping[str, Any]) -> None:
    assert any("_local_scalar_dense" in wait for wait in measured["planted"]["wait"])
    assert "are on the CPU, others on cuda:0" in measured["planted"]["mix"]
