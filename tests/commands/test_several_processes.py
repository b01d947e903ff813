"""Several processes that train together: the same losses as one, one writer, and a clean end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from workspace import MT_CLI, TIMEOUT_S, Workspace

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PLAIN = ("--set", "model.dropout=0", "--set", "training.log_every=1", "--set", "training.validate_every=25")
"""Without dropout, whose draws differ between processes."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def losses(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == "step"]


@pytest.fixture
def pair(workspace: Workspace) -> Iterator[Callable[..., list[subprocess.Popen[bytes]]]]:
    """Starts two processes that train together, the first of which writes."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: object) -> list[subprocess.Popen[bytes]]:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        for rank in (0, 1):
            started.append(
                subprocess.Popen(
                    [*MT_CLI, "train", "tiny.toml", *map(str, args)],
                    cwd=workspace.folder,
                    env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for_updates(run: Path, number: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not (run / "metrics.jsonl").is_file() or len(losses(run)) < number:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def endings(processes: Sequence[subprocess.Popen[bytes]]) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each."""
    outputs = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    return [
        (process.returncode, out.decode(), err.decode())
        for process, (out, err) in zip(processes, outputs, strict=True)
    ]


# The launcher would take --run for an option of its own, were it not for the two dashes before the program.


def test_two_processes_have_the_losses_of_one(workspace: Workspace, tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert workspace.execute("train", "tiny.toml", "--run", alone, "--max-steps", 50, *PLAIN).code == 0
    options = ["tiny.toml", "--run", str(together), "--max-steps", "50", *PLAIN]
    done = subprocess.run(
        [*LAUNCHER, "-m", "--", "mt_cli", "train", *options],
        cwd=workspace.folder,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == f"{together}\n"
    assert len(losses(together)) == 50
    assert losses(together)[:10] == pytest.approx(losses(alone)[:10], abs=1e-5)
    assert losses(together) == pytest.approx(losses(alone), abs=1e-3)  # where rounding has grown
    assert len((together / "metrics.jsonl").read_text().splitlines()) == 52
    assert json.loads((together / "env.json").read_text())["processes"] == 2


def script(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


def test_slurm_script_starts_a_run_and_goes_on_with_it(workspace: Workspace, tmp_path: Path) -> None:
    """With stand-ins for SLURM's programs, on one machine with one process."""
    script(tmp_path / "bin" / "scontrol", "echo 127.0.0.1")
    script(tmp_path / "bin" / "srun", 'shift; exec "$@"')
    script(tmp_path / ".venv" / "bin" / "torchrun", f'exec {sys.executable} -m torch.distributed.run "$@"')
    slurm = {"SLURM_JOB_NODELIST": "here", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "1"}
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, **slurm, "SLURM_JOB_ID": str(os.getpid()), "PATH": path}
    config = workspace.folder / "tiny.toml"
    for steps in (3, 5):
        options = ["--data", workspace.prepared, "--max-steps", steps, *PLAIN]
        done = subprocess.run(
            [ROOT / "scripts" / "train.slurm", config, *map(str, options)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert len(losses(tmp_path / "runs" / "tiny")) == steps


def test_others_end_where_one_is_killed(
    workspace: Workspace, tmp_path: Path, pair: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    run = tmp_path / "run"
    processes = pair("--run", run, "--set", "training.max_epochs=1000", *PLAIN)
    wait_for_updates(run, 30)
    processes[1].kill()
    code, out, err = endings(processes)[0]
    assert (code, out) == (5, "")
    assert "error: another process of this training cannot be reached (" in err
    assert err.endswith("); --resume goes on from the last checkpoint\n")
    assert json.loads((run / "status.json").read_text())["state"] == "failed"
    assert (
        workspace.execute("train", "tiny.toml", "--run", run, "--resume", "--max-steps", 30, *PLAIN).code == 0
    )


def test_a_signal_saves_once_and_ends_all(
    tmp_path: Path, pair: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    run = tmp_path / "run"
    processes = pair("--run", run, "--set", "training.max_epochs=1000", *PLAIN)
    wait_for_updates(run, 5)
    for process in processes:  # as a launcher does
        process.send_signal(signal.SIGTERM)
    (first, _, err), (second, out, others) = endings(processes)
    assert first == 128 + signal.SIGTERM
    assert "the state is saved, --resume goes on from there" in err
    assert (second, out, others) == (0, "", "")
    assert json.loads((run / "status.json").read_text())["state"] == "stopped"


def test_what_the_first_cannot_begin_the_others_leave(
    workspace: Workspace, pair: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    (first, _, err), (second, _, others) = endings(pair("--run", workspace.run))
    assert first == 2
    assert "exists; --resume goes on with it" in err
    assert (second, others) == (5, "error: the first process could not begin; it says why\n")


def test_an_address_that_is_none_is_told(workspace: Workspace, tmp_path: Path) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "x", "WORLD_SIZE": "2", "RANK": "0"}
    outcome = workspace.execute("train", "tiny.toml", "--run", tmp_path / "run", env=place)
    assert outcome.code == 5
    assert "another process of this training cannot be reached" in outcome.err
    assert not (tmp_path / "run").exists()
