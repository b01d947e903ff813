"""`scripts/sweep`: variants and seeds trained, compared, and continued after a stop."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sweep import Result, lay_out, spread, table, verdict
from workspace import TIMEOUT_S, Workspace

from mt_cli.errors import MtCliError

ROOT = Path(__file__).resolve().parents[2]
SMALL = "[variants.small.tokenizer]\nvocab_size = 400\n"
SWEEP = f"""\
config = "tiny.toml"
seeds = [3]

[all.training]
max_steps = 12
validate_every = 6

[variants.plain]
{SMALL}"""


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path) -> Path:
    """A working directory with a config, its corpus and a sweep."""
    text = (workspace.folder / "tiny.toml").read_text(encoding="utf-8")
    tmp_path.joinpath("tiny.toml").write_text(text, encoding="utf-8")
    tmp_path.joinpath("corpus").symlink_to(workspace.folder / "corpus")
    tmp_path.joinpath("sweep.toml").write_text(SWEEP, encoding="utf-8")
    return tmp_path


def start(folder: Path, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "sweep.py", "sweep.toml", *args],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def sweep(folder: Path, *args: str) -> tuple[int, str, str]:
    with start(folder, *args) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def status_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "status.json").read_bytes()))


@pytest.mark.processes
def test_every_variant_and_seed_is_trained_once_and_compared(folder: Path) -> None:
    code, out, err = sweep(folder, "--jobs", "2", "--beam-size", "2")
    assert code == 0, err
    lines, runs = out.splitlines(), folder / "runs" / "sweep" / "runs"
    assert [line.split(" | ")[:2] for line in lines[2:]] == [["| plain", "1"], ["| small", "1"]]
    assert lines[2].split(" | ")[3] == f"{status_of(runs / 'plain-3')['best_score']:.2f}"
    assert (folder / "runs" / "sweep" / "table.md").read_text(encoding="utf-8") == out
    # Only the variant with another vocabulary has data of its own.
    assert sorted(path.name for path in (folder / "data" / "prepared").glob("[!.]*")) == [
        "sweep-small",
        "tiny",
    ]
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("metrics.jsonl")}
    assert sweep(folder, "--beam-size", "2")[:2] == (0, out)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # A variant that has changed is not taken for the one that was trained.
    changed = SWEEP.replace("validate_every = 6", "validate_every = 4")
    folder.joinpath("sweep.toml").write_text(changed, encoding="utf-8")
    code, out, err = sweep(folder)
    assert (code, out) == (2, "")
    assert "trained with another [training]" in err


@pytest.mark.processes
def test_stopped_sweep_continues_where_it_was(folder: Path) -> None:
    text = SWEEP.replace("max_steps = 12", "max_steps = 60").replace(SMALL, "")
    folder.joinpath("sweep.toml").write_text(text, encoding="utf-8")
    run = folder / "runs" / "sweep" / "runs" / "plain-3"
    with start(folder) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not (run / "best.txt").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert status_of(run)["state"] == "stopped"
    code, out, err = sweep(folder)
    assert code == 0, err
    assert (status_of(run)["state"], status_of(run)["step"]) == ("finished", 60)
    assert "| plain | 1 | " in out


@pytest.mark.processes
def test_failing_command_ends_the_sweep_with_its_exit_code(folder: Path) -> None:
    folder.joinpath("corpus").unlink()
    code, out, err = sweep(folder)
    assert (code, out) == (3, "")
    assert "no such file" in err


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("vocab_size = 400", "vocab_sise = 400", "unknown key 'vocab_sise'"),
        ("max_steps = 12", 'max_steps = "a"', "training.max_steps"),
        ("seeds = [3]", "seed = [1]", "seed"),
        ("seeds = [3]", "seeds = [1, 1]", "different seeds"),
        ("seeds = [3]", "seeds = 3", "whole numbers"),
        ("seeds = [3]", 'seeds = ["3"]', "whole numbers"),
        (f"[variants.plain]\n{SMALL}", "[variants]\nplain = 1\n", "a table"),
        ('config = "tiny.toml"', "", "config"),
        ('config = "tiny.toml"', 'config = "none.toml"', "none.toml"),
        ("[variants.plain]", "[variants", "cannot be used"),
        ("[variants.plain]", '[variants."../plain"]', "variants"),
        (f"[variants.plain]\n{SMALL}", "", "variants"),
    ],
)
def test_wrong_sweep_is_explained(
    folder: Path, old: str, new: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert old in SWEEP
    folder.joinpath("sweep.toml").write_text(SWEEP.replace(old, new), encoding="utf-8")
    with pytest.raises(MtCliError, match=complaint):
        lay_out(Path("sweep.toml"), Path("runs/sweep"))


@pytest.mark.parametrize(
    "path", [*(ROOT / "configs" / "sweeps").iterdir()], ids=lambda path: path.stem
)
def test_the_projects_own_sweeps_can_be_read(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    jobs, prepared = lay_out(path, tmp_path)
    assert jobs
    assert prepared


def result(variant: str, seed: int, bleu: float) -> Result:
    return Result(variant, seed, bleu, nll=2.0, beam_bleu=None, seconds=60)


def test_single_seed_says_little() -> None:
    assert verdict([0.59]) == verdict([-0.59]) == "none"
    assert verdict([0.61]) == "better (one seed)"
    assert verdict([-0.61]) == "worse (one seed)"


def test_several_seeds_are_tested_in_pairs() -> None:
    # Student's t at 95 %, 2 degrees of freedom: 4.303 standard errors, of 0.1 / sqrt(3) here.
    assert verdict([0.2, 0.3, 0.4]) == "better"
    assert verdict([-0.2, -0.3, -0.4]) == "worse"
    assert verdict([0.1, 0.2, 0.3]) == "none"


def test_differences_are_those_of_the_same_seeds() -> None:
    results = [result("a", 1, 30.0), result("a", 2, 40.0), result("b", 2, 41.0)]
    *_, last = table(["a", "b", "c"], results).splitlines()
    assert last == "| b | 1 | 2.000 | 41.00 | – | +1.00 | better (one seed) | 60 |"


def test_spread_is_the_standard_deviation() -> None:
    assert spread([38.0, 39.0, 40.0]) == "39.00 ± 1.00"
    assert spread([38.0]) == "38.00"
