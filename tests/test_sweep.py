"""`scripts/sweep`: variants and seeds trained, compared, and gone on with after a stop."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from workspace import TIMEOUT_S, Workspace

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))  # scripts, not a part of the package

from comparison import Result, spread, table, verdict  # noqa: E402
from sweep import read_sweep  # noqa: E402

from mt_cli.errors import ConfigError  # noqa: E402

SWEEP = """\
config = "tiny.toml"
seeds = [1, 2]

[all.training]
max_steps = 12
validate_every = 6

[variants.plain]
[variants.wide.model]
d_ff = 96
"""
SMALL = "[variants.small.tokenizer]\nvocab_size = 400\n"


def status_of(run: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((run / "status.json").read_bytes())
    return status


def start(folder: Path, *args: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, SCRIPTS / "sweep.py", "sweep.toml", *map(str, args)],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def sweep(folder: Path, *args: object) -> tuple[int, str, str]:
    with start(folder, *args) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path) -> Path:
    """A working directory whose data are prepared, and a sweep."""
    text = (workspace.folder / "tiny.toml").read_text(encoding="utf-8")
    tmp_path.joinpath("tiny.toml").write_text(text, encoding="utf-8")
    tmp_path.joinpath("corpus").symlink_to(workspace.folder / "corpus")
    tmp_path.joinpath("sweep.toml").write_text(SWEEP, encoding="utf-8")
    return tmp_path


def test_every_variant_and_seed_is_trained_once_and_compared(folder: Path) -> None:
    text = SWEEP.replace("[variants.wide.model]\nd_ff = 96\n", SMALL)
    folder.joinpath("sweep.toml").write_text(text, encoding="utf-8")
    code, out, err = sweep(folder, "--jobs", 2, "--beam-size", 2)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "| variant | seeds | nll | BLEU | beam | difference | verdict | s |"
    assert [line.split(" | ")[:2] for line in lines[2:]] == [["| plain", "2"], ["| small", "2"]]
    assert (folder / "runs" / "sweep" / "table.md").read_text(encoding="utf-8") == out
    runs = folder / "runs" / "sweep" / "runs"
    scores = [
        json.loads(runs.joinpath(f"plain-{seed}", "status.json").read_bytes())["best_score"]
        for seed in (1, 2)
    ]
    assert f"{sum(scores) / 2:.2f} ± " in lines[2]
    # Only the variant with another vocabulary has data of its own.
    prepared = sorted(path.name for path in folder.joinpath("data", "prepared").iterdir())
    assert prepared == ["sweep-small", "tiny"]
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("metrics.jsonl")}
    assert len(before) == 4
    beams = {path: path.stat().st_mtime_ns for path in runs.glob("*.beam.json")}
    assert len(beams) == 4
    assert sweep(folder, "--beam-size", 2)[:2] == (0, out)
    assert {path: path.stat().st_mtime_ns for path in runs.glob("*.beam.json")} == beams
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("metrics.jsonl")} == before


def test_a_stopped_sweep_goes_on_where_it_was(folder: Path) -> None:
    long = SWEEP.replace("max_steps = 12", "max_epochs = 1000").replace("seeds = [1, 2]", "seeds = [1]")
    folder.joinpath("sweep.toml").write_text(long, encoding="utf-8")
    run = folder / "runs" / "sweep" / "runs" / "plain-1"
    with start(folder) as process:
        while not (run / "best.txt").exists():
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    stopped = status_of(run)
    assert stopped["state"] == "stopped"
    code, out, _ = sweep(folder, "--time-limit", "0.001s")
    assert (code, status_of(run)) == (0, stopped)
    assert f"plain, seed 1: stopped at update {stopped['step']}" in out
    assert "wide, seed 1: new at update 0" in out
    few = long.replace("max_epochs = 1000", f"max_steps = {stopped['step'] + 3}")
    folder.joinpath("sweep.toml").write_text(few, encoding="utf-8")
    assert sweep(folder)[0] == 0
    assert (status_of(run)["state"], status_of(run)["step"]) == ("finished", stopped["step"] + 3)


def test_a_failing_command_ends_the_sweep_with_its_exit_code(folder: Path) -> None:
    folder.joinpath("corpus").unlink()
    code, out, err = sweep(folder)
    assert (code, out) == (3, "")
    assert "no such file; [data.files] names it" in err


def test_the_projects_own_sweeps_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SCRIPTS.parent)
    own = sorted(Path("configs/sweeps").glob("*.toml"))
    assert own
    for path in own:
        assert read_sweep(path).variants


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("d_ff = 96", "d_fff = 96", "unknown key .d_fff"),
        ("max_steps = 12", 'max_steps = "a"', "training.max_steps"),
        ("seeds", "seed", "unknown: seed"),
        ('config = "tiny.toml"', "", "expected config"),
        ('config = "tiny.toml"', 'config = "none.toml"', "none.toml: no such config file"),
        ("[variants.plain]", "[variants", "sweep.toml"),
        ("seeds = [1, 2]", "seeds = [1, -2]", "seeds"),
        ("seeds = [1, 2]", "seeds = []", "seeds"),
    ],
)
def test_a_wrong_sweep_is_explained_before_anything_begins(
    folder: Path, old: str, new: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert old in SWEEP
    folder.joinpath("sweep.toml").write_text(SWEEP.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint):
        read_sweep(Path("sweep.toml"))


def result(variant: str, seed: int, bleu: float) -> Result:
    return Result(variant, seed, bleu, nll=2.0, beam_bleu=None, seconds=60)


def test_a_single_seed_says_little() -> None:
    assert verdict([0.59]) == verdict([-0.59]) == "none"
    assert verdict([0.61]) == "better (one seed)"
    assert verdict([-0.61]) == "worse (one seed)"


def test_several_seeds_are_tested_in_pairs() -> None:
    # Student's t at 95 %, 2 degrees of freedom: 4.303 standard errors, of 0.1 / sqrt(3) here.
    assert verdict([0.2, 0.3, 0.4]) == "better"
    assert verdict([-0.2, -0.3, -0.4]) == "worse"
    assert verdict([0.1, 0.2, 0.3]) == "none"
    assert verdict([2.0, -1.0, 3.0]) == "none"


def test_differences_are_those_of_the_same_seeds() -> None:
    results = [result("a", 1, 30.0), result("a", 2, 40.0), result("b", 2, 41.0)]
    *_, last = table(["a", "b", "c"], results).splitlines()
    assert last == "| b | 1 | 2.000 | 41.00 | +1.00 | better (one seed) | 60 |"


def test_spread_is_the_standard_deviation() -> None:
    assert spread([38.0, 39.0, 40.0]) == "39.00 ± 1.00"
    assert spread([38.0]) == "38.00"
