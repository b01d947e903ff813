"""Training in the workspace, and what a run folder holds afterwards."""

import json
import socket
from pathlib import Path
from typing import Any

from workspace import Outcome, Workspace

OF_A_CLOCK = ("elapsed_s", "tgt_tokens_per_s", "validation_s")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def train(workspace: Workspace, run: Path, *args: object) -> Outcome:
    return workspace.call("train", "tiny.toml", "--run", run, *args)


def sets(*settings: str) -> tuple[str, ...]:
    """`--set` for each."""
    return tuple(word for setting in settings for word in ("--set", setting))


def status(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.joinpath("status.json").read_bytes())
    return found


def ended(run: Path) -> tuple[str, int]:
    """How training ended, and after which update."""
    found = status(run)
    return found["state"], found["step"]


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl, without what a clock says."""
    lines = map(json.loads, run.joinpath("metrics.jsonl").read_text().splitlines())
    return [
        {key: value for key, value in line.items() if key not in OF_A_CLOCK}
        for line in lines
        if line["kind"] == kind
    ]


def steps_of(run: Path, kind: str) -> list[int]:
    return [record["step"] for record in records(run, kind)]


def checkpoint(run: Path, pointer: str = "last") -> Path:
    """The folder of the checkpoint that `best.txt` or `last.txt` names."""
    return run / "checkpoints" / run.joinpath(f"{pointer}.txt").read_text().strip()


def weights(run: Path, pointer: str = "last") -> bytes:
    return checkpoint(run, pointer).joinpath("model.safetensors").read_bytes()
