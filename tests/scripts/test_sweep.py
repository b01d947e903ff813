"""`scripts/sweep`: variants and seeds trained, compared, and gone on with after a stop."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sweeps.comparison import Result, spread, table, verdict
from sweeps.plan import Job, read_sweep
from sweeps.sweep import Commands, main, train
from workspace import TIMEOUT_S, Workspace

from mt_cli.errors import ConfigError
from mt_cli.machine.signals import StopSignals

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

SWEEP = """\
config = "tiny.toml"
seeds = [3]

[all.training]
max_steps = 12
validate_every = 6

[variants.plain]
"""
SMALL = "[variants.small.tokenizer]\nvocab_size = 400\n"
SWEEP += SMALL


def status_of(run: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((run / "status.json").read_bytes())
    return status


def start(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "sweeps.sweep", "sweep.toml"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
    )  # fmt: skip


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def times_of(runs: Path) -> dict[Path, int]:
    """When what was trained and scored was last written."""
    files = [path for name in ("metrics.jsonl", "sweep.json") for path in runs.rglob(name)]
    return {path: path.stat().st_mtime_ns for path in files}


Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sweep(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Here]:
    """Runs the sweep in this process, its commands in others."""
    handlers = {number: signal.getsignal(number) for number in StopSignals.SIGNALS}
    monkeypatch.chdir(folder)

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["scripts/sweep", "sweep.toml", *map(str, args)])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        printed = capfd.readouterr()
        return int(str(code)), printed.out, printed.err

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def here(folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, sweep: Here) -> Here:
    """Runs the commands in this process too, one after another."""

    def run(_: Commands, *args: str, allowed: Collection[int] = (0,)) -> str:
        outcome = workspace.call(*args, cwd=folder)
        sys.stderr.write(outcome.err)
        if outcome.code not in allowed:
            raise SystemExit(outcome.code)
        return outcome.text

    monkeypatch.setattr(Commands, "__init__", lambda self: None)
    monkeypatch.setattr(Commands, "run", run)

    def train_in_turn(jobs: Sequence[Job], commands: Commands, *, side_by_side: int, deadline: float) -> None:
        for job in jobs:  # in the main thread, where signals can be answered
            train(job, commands, side_by_side, deadline)

    monkeypatch.setattr("sweeps.sweep.train_all", train_in_turn)

    return sweep


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path) -> Path:
    """A working directory with a config, its corpus and a sweep."""
    text = (workspace.folder / "tiny.toml").read_text(encoding="utf-8")
    tmp_path.joinpath("tiny.toml").write_text(text, encoding="utf-8")
    tmp_path.joinpath("corpus").symlink_to(workspace.folder / "corpus")
    tmp_path.joinpath("sweep.toml").write_text(SWEEP, encoding="utf-8")
    return tmp_path


def test_every_variant_and_seed_is_trained_once_and_compared(folder: Path, here: Here) -> None:
    code, out, err = here("--beam-size", 2)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "| variant | seeds | nll | BLEU | beam | difference | verdict | seconds |"
    assert [line.split(" | ")[:2] for line in lines[2:]] == [["| plain", "1"], ["| small", "1"]]
    assert (folder / "runs" / "sweep" / "table.md").read_text(encoding="utf-8") == out
    runs = folder / "runs" / "sweep" / "runs"
    assert lines[2].split(" | ")[3] == f"{status_of(runs / 'plain-3')['best_score']:.2f}"
    # Only the variant with another vocabulary has data of its own.
    prepared = sorted(path.name for path in folder.joinpath("data", "prepared").iterdir())
    assert prepared == ["sweep-small", "tiny"]
    before = times_of(runs)
    assert len(before) == 4
    assert here("--beam-size", 2)[:2] == (0, out)
    assert times_of(runs) == before
    # A variant that has changed is not taken for the one that was trained.
    folder.joinpath("sweep.toml").write_text(
        SWEEP.replace("validate_every = 6", "validate_every = 4"), encoding="utf-8"
    )
    code, out, err = here()
    assert (code, out) == (2, "")
    assert "runs/plain-3: trained with another training.validate_every; remove it" in err


@pytest.mark.processes
def test_a_stopped_sweep_goes_on_where_it_was(folder: Path, here: Here) -> None:
    text = SWEEP.replace("max_steps = 12", "max_steps = 60").replace(SMALL, "")
    folder.joinpath("sweep.toml").write_text(text, encoding="utf-8")
    run = folder / "runs" / "sweep" / "runs" / "plain-3"
    with start(folder) as process:
        wait_for(run / "best.txt", process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + signal.SIGTERM, err
    stopped = status_of(run)
    assert stopped["state"] == "stopped"
    code, out, _ = here("--time-limit", "0.001s")
    assert (code, status_of(run)) == (0, stopped)
    assert f"plain, seed 3: stopped at update {stopped['step']}" in out
    code, out, err = here()
    assert code == 0, err
    assert (status_of(run)["state"], status_of(run)["step"]) == ("finished", 60)
    assert "| plain | 1 | " in out


@pytest.mark.processes
def test_a_failing_training_ends_the_others_saved(
    folder: Path, sweep: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SWEEP.replace("max_steps = 12", "max_epochs = 300").replace(SMALL, "[variants.small]\n")
    folder.joinpath("sweep.toml").write_text(text, encoding="utf-8")
    runs = folder / "runs" / "sweep" / "runs"
    runs.joinpath("small-3").mkdir(parents=True)
    runs.joinpath("small-3", "notes.txt").touch()
    plain = runs / "plain-3" / "status.json"

    def after_plain(job: Job, commands: Commands, side_by_side: int, deadline: float) -> None:
        until = time.monotonic() + TIMEOUT_S
        while job.variant == "small" and not plain.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        train(job, commands, side_by_side, deadline)

    monkeypatch.setattr("sweeps.sweep.train", after_plain)
    code, out, err = sweep("--jobs", 2)
    assert (code, out) == (2, "")
    assert "small-3: no run folder" in err
    assert status_of(plain.parent)["state"] == "stopped"


def test_a_failing_command_ends_the_sweep_with_its_exit_code(folder: Path, here: Here) -> None:
    folder.joinpath("corpus").unlink()
    code, out, err = here()
    assert (code, out) == (3, "")
    assert "no such file; [data.files] names it" in err


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--jobs", "0"], "--jobs"),
        (["--beam-size", "x"], "--beam-size"),
        (["--length-penalty", "x"], "--length-penalty"),
        (["--time-limit", "abc"], "--time-limit 'abc': expected a time"),
    ],
)
def test_a_wrong_flag_is_refused_before_anything_begins(
    folder: Path, here: Here, args: list[str], complaint: str
) -> None:
    code, out, err = here(*args)
    assert (code, out) == (2, "")
    assert complaint in err
    assert not folder.joinpath("runs").exists()


def test_the_projects_own_sweeps_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SCRIPTS.parent)
    assert [path.name for path in Path("configs/sweeps").iterdir() if not read_sweep(path).variants] == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("vocab_size = 400", "vocab_sise = 400", "unknown key 'vocab_sise'"),
        ("max_steps = 12", 'max_steps = "a"', "training.max_steps"),
        ("seeds = [3]", "seed = [1]", "seed: Extra"),
        ("seeds = [3]", "seeds = [1, -2]", "seeds.1"),
        ("seeds = [3]", "seeds = [1, 1]", "seeds: .*differ"),
        ("seeds = [3]", "seeds = []", "seeds"),
        ('config = "tiny.toml"', "", "config: Field required"),
        ('config = "tiny.toml"', 'config = "none.toml"', "none.toml: no such config file"),
        ("[variants.plain]", "[variants", "sweep.toml"),
        ("[variants.plain]", '[variants."../plain"]', "variants"),
        ("[all.training]", "[all]", "all.max_steps"),
        (SMALL, "[variants.small]\nvocab_size = 400\n", "variants.small.vocab_size"),
        (f"[variants.plain]\n{SMALL}", "", "variants: Field required"),
    ],
)
def test_a_wrong_sweep_is_explained(
    folder: Path, old: str, new: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert old in SWEEP
    folder.joinpath("sweep.toml").write_text(SWEEP.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint):
        read_sweep(Path("sweep.toml"))


def test_a_byte_order_mark_does_no_harm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for name in ("tiny.toml", "sweep.toml"):
        path = folder / name
        path.write_text("\ufeff" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert list(read_sweep(Path("sweep.toml")).variants) == ["plain", "small"]


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
