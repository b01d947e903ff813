"""Several processes that train together: the same losses as one, one writer, and a clean end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trained import free_port, records, sets, status, train
from workspace import MT_CLI, TIMEOUT_S, Workspace

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
PLAIN = sets("model.dropout=0", "training.log_every=1", "training.validate_every=25")
"""Without dropout, whose draws differ between processes."""
ENDLESS = (*sets("training.max_epochs=1000"), *PLAIN)


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in records(run, "step")]


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start_second(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the second of two processes that train together; this one is the first."""
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


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with stand-ins for SLURM's programs, on one machine."""
    script(tmp_path / "bin" / "scontrol", "echo 127.0.0.1")
    script(tmp_path / "bin" / "srun", 'shift; exec "$@"')
    return tmp_path


def test_slurm_script_trains_with_the_losses_of_one_process_though_a_worker_is_killed(
    workspace: Workspace, slurm: Path
) -> None:
    """The data come in shards, which is not to make a difference either."""
    slurm.joinpath("corpus").symlink_to(workspace.folder / "corpus")
    for flags in (["--shard", "1/3"], ["--shard", "2/3"], ["--shard", "3/3"], ["--join"]):
        prepared = workspace.call("prepare", workspace.folder / "tiny.toml", *flags, cwd=slurm)
        assert prepared.code == 0, prepared.err
    launch = f'exec {sys.executable} -m torch.distributed.run --max-restarts 1 "$@"'
    script(slurm / ".venv" / "bin" / "torchrun", launch)
    run, alone = slurm / "runs" / "tiny", slurm / "alone"
    args = ("--max-steps", 100, *PLAIN)
    job = submit(slurm, workspace.folder / "tiny.toml", *args)
    after_updates(run, 30, lambda: os.kill(workers_of(job.pid)[-1], signal.SIGKILL))
    code, out, err = ending(job)
    assert (code, out) == (0, "runs/tiny\n"), err
    assert (run / "train.log").read_text().count(", resumed ") == 1
    assert json.loads((run / "env.json").read_text())["processes"] == 2
    assert len(losses(run)) == 100

    assert train(workspace, alone, "--data", workspace.prepared, *args).code == 0
    # Rounding grows: the sums over two processes are made in another order. Other batches would
    # differ by more than a hundredth at once.
    assert losses(run)[:40] == pytest.approx(losses(alone)[:40], rel=1e-2)


def test_slurm_script_goes_on_with_the_run_when_it_is_submitted_again(
    workspace: Workspace, slurm: Path
) -> None:
    script(slurm / ".venv" / "bin" / "torchrun", 'printf "%s\n" "$@"')
    workspace.copy_run(slurm / "runs" / "tiny")
    job = submit(slurm, workspace.folder / "tiny.toml", "--data", workspace.prepared)
    command = ending(job)[1].partition("\nmt_cli\n")[2].splitlines()
    resumed = workspace.call(*command, cwd=slurm)
    assert (resumed.code, resumed.text) == (0, "runs/tiny\n")


def submit(folder: Path, *args: object) -> "subprocess.Popen[bytes]":
    """Start scripts/train.slurm in `folder`, as SLURM does with two GPUs."""
    job = {"SLURM_JOB_NODELIST": "here", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "2"}
    job |= {"SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": str(os.getpid())}
    return subprocess.Popen(
        [ROOT / "scripts" / "train.slurm", *map(str, args)],
        cwd=folder,
        env={**os.environ, **job, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def workers_of(job: int) -> list[int]:
    """The processes that the launcher of a job has started, in their order."""
    (launcher,) = children_of(job)
    return children_of(launcher)


def children_of(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in children.split()]


def test_others_end_where_one_is_killed(
    workspace: Workspace, tmp_path: Path, start_second: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    after_updates(run, 30, start_second("--run", run, *ENDLESS).kill)
    outcome = train(workspace, run, *ENDLESS)
    assert (outcome.code, outcome.out) == (5, b"")
    assert "--resume" in outcome.err
    assert status(run)["state"] == "failed"
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert train(workspace, run, *ENDLESS, "--resume", "--max-steps", 30).code == 0


@pytest.mark.parametrize("first_has_it", [True, False], ids=["for all", "for the second"])
def test_a_signal_saves_once_and_ends_all(
    workspace: Workspace, tmp_path: Path, start_second: Start, first_has_it: bool
) -> None:
    """A launcher sends it to all; where one of several machines is taken away, only some get it."""
    run = tmp_path / "run"
    second = start_second("--run", run, *ENDLESS)

    def signal_them() -> None:
        second.send_signal(signal.SIGTERM)
        if first_has_it:
            os.kill(os.getpid(), signal.SIGTERM)

    after_updates(run, 5, signal_them)
    outcome = train(workspace, run, *ENDLESS)
    assert outcome.code == 128 + signal.SIGTERM
    assert ending(second) == (0, "", "")
    assert status(run)["state"] == "stopped"


def test_what_the_first_cannot_begin_the_others_leave(
    workspace: Workspace, start_second: Start
) -> None:
    second = start_second("--run", workspace.run)
    assert train(workspace, workspace.run).code == 2
    code, out, err = ending(second)
    assert (code, out, err.count("\n")) == (5, "", 1)


def test_several_processes_without_torchrun_are_refused(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    outcome = train(workspace, tmp_path / "run")
    assert outcome.code == 2
    assert "RANK, MASTER_PORT" in outcome.err
    assert not (tmp_path / "run").exists()
