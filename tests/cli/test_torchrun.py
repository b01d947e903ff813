"""Several processes that train together: the same losses as one, one writer, and a clean end."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from started import Process, Start, children_of
from trained import free_port, records, sets, status, train
from workspace import MT_CLI, TIMEOUT_S, Workspace

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
PLAIN = sets("model.dropout=0", "training.log_every=1", "training.validate_every=25")
"""Without dropout, whose draws differ between processes."""
ENDLESS = (*sets("training.max_epochs=1000"), *PLAIN)


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in records(run, "step")]


@pytest.fixture
def start_second(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, start: Start) -> Start:
    """Starts the second of two processes that train together; this one is the first."""

    def start_it(*args: object) -> Process:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        for name, value in {**place, "RANK": "0", "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        env = {**os.environ, "RANK": "1", "LOCAL_RANK": "1"}
        return start(*MT_CLI, "train", "tiny.toml", *args, cwd=workspace.folder, env=env)

    return start_it


def has_made(run: Path, number: int) -> bool:
    """Whether so many updates of `run` are logged."""
    return (run / "metrics.jsonl").is_file() and len(losses(run)) >= number


@contextmanager
def after_updates(run: Path, number: int, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` from another thread, within the block, once `run` has made so many updates."""
    is_over = threading.Event()

    def wait_and_act() -> None:
        while not is_over.wait(0.05):
            if has_made(run, number):
                act()
                return

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(wait_and_act)
        try:
            yield
        finally:
            is_over.set()
    acting.result()


def ending(process: Process) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def script(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


@pytest.fixture
def submit(start: Start) -> Start:
    """Starts scripts/train.slurm in a folder, as SLURM does with two GPUs."""

    def submit_it(folder: Path, *args: object) -> Process:
        job = {"SLURM_JOB_NODELIST": "here", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "2"}
        job |= {"SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": str(os.getpid())}
        env = {**os.environ, **job, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        return start(ROOT / "scripts" / "train.slurm", *args, cwd=folder, env=env)

    return submit_it


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with stand-ins for SLURM's programs, on one machine."""
    script(tmp_path / "bin" / "scontrol", "echo 127.0.0.1")
    script(tmp_path / "bin" / "srun", 'shift; exec "$@"')
    return tmp_path


def test_slurm_script_trains_with_the_losses_of_one_process_though_a_worker_is_killed(
    workspace: Workspace, slurm: Path, submit: Start
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
    while not has_made(run, 30):
        assert job.poll() is None, ending(job)
        time.sleep(0.05)
    os.kill(workers_of(job.pid)[-1], signal.SIGKILL)
    code, out, err = ending(job)
    assert (code, out) == (0, "runs/tiny\n"), err
    assert (run / "train.log").read_text().count(", resumed ") == 1
    assert json.loads((run / "env.json").read_text())["processes"] == 2
    assert len(losses(run)) == 100

    assert train(workspace, alone, "--data", workspace.prepared, *args).code == 0
    # The sums over two processes are made in another order; other batches would differ by more.
    assert losses(run) == pytest.approx(losses(alone), rel=1e-3)


def test_slurm_script_goes_on_with_the_run_when_it_is_submitted_again(
    workspace: Workspace, slurm: Path, submit: Start
) -> None:
    script(slurm / ".venv" / "bin" / "torchrun", 'printf "%s\n" "$@"')
    workspace.copy_run(slurm / "runs" / "tiny")
    job = submit(slurm, workspace.folder / "tiny.toml", "--data", workspace.prepared)
    command = ending(job)[1].partition("\nmt_cli\n")[2].splitlines()
    resumed = workspace.call(*command, cwd=slurm)
    assert (resumed.code, resumed.text) == (0, "runs/tiny\n")


def workers_of(job: int) -> list[int]:
    """The processes that the launcher of a job has started, in their order."""
    (launcher,) = children_of(job)
    return children_of(launcher)


def test_others_end_where_one_is_killed(
    workspace: Workspace, tmp_path: Path, start_second: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    second = start_second("--run", run, *ENDLESS)
    with after_updates(run, 30, second.kill):
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

    with after_updates(run, 5, signal_them):
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
