"""Several processes that train together: the same losses as one, one writer, and a clean end."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from workspace import MT_CLI, TIMEOUT_S, Workspace

from mt_cli.config.load import load_config
from mt_cli.training.monitor import before_training
from mt_cli.training.trainer import StepReport, Trainer

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
PLAIN = (
    "--set",
    "model.dropout=0",
    "--set",
    "training.log_every=1",
    "--set",
    "training.validate_every=25",
)
"""Without dropout, whose draws differ between processes."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def losses(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == "step"]


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start_second(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the second of two processes that train together; this one is the first, which writes."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: object) -> "subprocess.Popen[bytes]":
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        for name, value in {**place, "RANK": "0", "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        started.append(
            subprocess.Popen(
                [*MT_CLI, "train", "tiny.toml", *map(str, args)],
                cwd=workspace.folder,
                env={**os.environ, "RANK": "1", "LOCAL_RANK": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def after_updates(run: Path, number: int, act: Callable[[], object]) -> None:
    """Call `act` from another thread once so many updates of `run` are logged."""

    def wait() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not (run / "metrics.jsonl").is_file() or len(losses(run)) < number:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        act()

    threading.Thread(target=wait, daemon=True).start()


def ending(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out.decode(), err.decode()


def script(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


def test_slurm_script_trains_in_two_processes_with_the_losses_of_one_and_goes_on(
    workspace: Workspace, tmp_path: Path
) -> None:
    """With stand-ins for SLURM's programs, on one machine; the launcher is the real one."""
    script(tmp_path / "bin" / "scontrol", "echo 127.0.0.1")
    script(tmp_path / "bin" / "srun", 'shift; exec "$@"')
    torchrun = tmp_path / ".venv" / "bin" / "torchrun"
    slurm = {"SLURM_JOB_NODELIST": "here", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "2"}
    slurm |= {"SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": str(os.getpid())}
    env = {**os.environ, **slurm, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    alone, together = tmp_path / "alone", tmp_path / "runs" / "tiny"
    options = ["--data", str(workspace.prepared), "--max-steps"]

    def submit(launcher: str) -> str:
        script(torchrun, launcher)
        done = subprocess.run(
            [ROOT / "scripts" / "train.slurm", workspace.folder / "tiny.toml", *options, "12", *PLAIN],
            cwd=tmp_path, env=env, capture_output=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    assert submit(f'exec {sys.executable} -m torch.distributed.run "$@"') == "runs/tiny\n"
    assert workspace.call("train", "tiny.toml", "--run", alone, *options, 12, *PLAIN).code == 0
    assert len(losses(together)) == 12
    assert losses(together) == pytest.approx(losses(alone), abs=1e-6)
    assert json.loads((together / "env.json").read_text())["processes"] == 2

    _, _, command = submit('printf "%s\n" "$@"').partition("\nmt_cli\n")
    assert workspace.call(*command.splitlines(), "--max-steps", 14, cwd=tmp_path).code == 0
    assert len(losses(together)) == 14


def test_a_killed_worker_is_started_again_and_ends_with_the_weights_of_an_undisturbed_run(
    workspace: Workspace, tmp_path: Path
) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc-per-node", "2", "--max-restarts", "1", "-m", "--"]
    options = ["--auto-resume", "--max-steps", "300", "--set", "training.max_epochs=1000", *PLAIN]
    for name in ("undisturbed", "killed"):
        run = tmp_path / name
        launched = subprocess.Popen(
            [*launcher, "mt_cli", "train", "tiny.toml", "--run", str(run), *options],
            cwd=workspace.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if name == "killed":
            after_updates(run, 110, partial(kill_last_child, launched.pid))
        code, _, err = ending(launched)
        assert code == 0, err
    weights = [run_weights(tmp_path / name) for name in ("undisturbed", "killed")]
    assert weights[0] == weights[1]
    logs = [(tmp_path / name / "train.log").read_text() for name in ("undisturbed", "killed")]
    assert [log.count(", resumed after update ") for log in logs] == [0, 1]


def kill_last_child(parent: int) -> None:
    """Kill the process that `parent` has started last."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)


def run_weights(run: Path) -> bytes:
    """Of the last checkpoint."""
    last = (run / "last.txt").read_text().strip()
    return (run / "checkpoints" / last / "model.safetensors").read_bytes()


def test_others_end_where_one_is_killed(
    workspace: Workspace, tmp_path: Path, start_second: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    args = ("--run", run, "--set", "training.max_epochs=1000", *PLAIN)
    after_updates(run, 30, start_second(*args).kill)
    outcome = workspace.call("train", "tiny.toml", *args)
    assert (outcome.code, outcome.out) == (5, b"")
    assert "error: another process of this training cannot be reached (" in outcome.err
    assert outcome.err.endswith("); --resume goes on from the last checkpoint\n")
    assert json.loads((run / "status.json").read_text())["state"] == "failed"
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert workspace.call("train", "tiny.toml", *args, "--resume", "--max-steps", 30).code == 0


def test_a_signal_saves_once_and_ends_all(
    workspace: Workspace, tmp_path: Path, start_second: Start
) -> None:
    run = tmp_path / "run"
    args = ("--run", run, "--set", "training.max_epochs=1000", *PLAIN)
    second = start_second(*args)

    def signal_all() -> None:  # as a launcher does
        for pid in (os.getpid(), second.pid):
            os.kill(pid, signal.SIGTERM)

    after_updates(run, 5, signal_all)
    outcome = workspace.call("train", "tiny.toml", *args)
    assert outcome.code == 128 + signal.SIGTERM
    assert "the state is saved, --resume goes on from there" in outcome.err
    assert ending(second) == (0, "", "")
    assert json.loads((run / "status.json").read_text())["state"] == "stopped"


def test_what_the_first_cannot_begin_the_others_leave(
    workspace: Workspace, start_second: Start
) -> None:
    second = start_second("--run", workspace.run)
    outcome = workspace.call("train", "tiny.toml", "--run", workspace.run)
    assert outcome.code == 2
    assert "exists; --resume goes on with it" in outcome.err
    assert ending(second) == (5, "", "error: the first process could not begin; it says why\n")


@pytest.mark.parametrize(
    ("size", "lacking"), [("2", "RANK, MASTER_PORT"), ("two", "WORLD_SIZE, RANK, MASTER_PORT")]
)
def test_several_processes_without_torchrun_are_refused(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, lacking: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    outcome = workspace.call("train", "tiny.toml", "--run", tmp_path / "run")
    assert outcome.code == 2
    assert f"no number is in {lacking}; start with torchrun" in outcome.err
    assert not (tmp_path / "run").exists()


def test_replicas_that_drift_apart_are_told_of_and_made_equal(
    workspace: Workspace, tmp_path: Path, start_second: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    args = ("--run", run, "--max-steps", 100, *PLAIN)
    second = start_second(*args)

    def spoiled(trainer: Trainer, *given: Any, **named: Any) -> StepReport:  # noqa: ANN401
        report = update(trainer, *given, **named)
        if report.step == 30:  # in this process alone
            with torch.no_grad():
                next(trainer.model.parameters())[0, 0] += 1e-6
        return report

    update = Trainer._update
    monkeypatch.setattr(Trainer, "_update", spoiled)
    outcome = workspace.call("train", "tiny.toml", *args)
    assert outcome.code == 0
    assert (
        outcome.err.count(
            "the processes' weights have drifted apart; all go on with those of the first"
        )
        == 1
    )
    assert ending(second)[0] == 0


def test_processes_with_little_to_do_are_warned_of(workspace: Workspace) -> None:
    config = load_config(workspace.folder / "tiny.toml", ["training.tokens_per_batch=5000"])
    sizes = {"num_pairs": 10**6, "num_tokens": 10**8, "vocab_size": 100, "total_steps": 10**5}
    (warning,) = before_training(config, **sizes, num_processes=4)
    assert warning.startswith("each of 4 processes gets 1,250 tokens of a batch")
    assert warning.endswith("set training.tokens_per_batch = 8192")
    assert not list(before_training(config, **sizes, num_processes=2))
