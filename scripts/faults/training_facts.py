"""What two trainings must have in common to be the same: weights, state and logs, without clocks.

Reads a run folder's files by itself, not through mt_cli.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

CLOCKS = {"elapsed_s", "validation_s", "tgt_tokens_per_s", "seal"}
"""Keys of metrics.jsonl and of checkpoints that tell time, or depend on it."""
METER, SECONDS_AT = "meter:since_", 4
"""Tensors of sums that end in seconds."""
STEP_LINE = re.compile(r" (step (\d+)  epoch .*?)  tok/s")
CHECKPOINT_FILES = ("model.safetensors", "state.safetensors")


def facts_of(run: Path) -> dict[str, object]:
    """The facts about the training in `run`, to be compared with another's."""
    facts: dict[str, object] = {"metrics": _metrics(run), "log": _logged_steps(run)}
    for pointer in ("best", "last"):
        name = (run / f"{pointer}.txt").read_text().strip()
        facts[pointer] = name
        for file in CHECKPOINT_FILES:
            facts[f"{pointer} {file}"] = _tensors(run / "checkpoints" / name / file)
        facts[f"{pointer} state.json"] = _without_clocks(
            json.loads((run / "checkpoints" / name / "state.json").read_text())
        )
    return facts


def differences(found: dict[str, object], expected: dict[str, object]) -> list[str]:
    """Names of the facts that differ."""
    return [name for name in expected if found.get(name) != expected[name]]


def _metrics(run: Path) -> list[object]:
    return [_without_clocks(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _without_clocks(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in CLOCKS}


def _logged_steps(run: Path) -> dict[int, str]:
    """The last line of train.log for each logged step: a kill lets steps be logged again."""
    log = (run / "train.log").read_text(errors="replace")
    return {int(step): line for line, step in STEP_LINE.findall(log)}


def _tensors(path: Path) -> dict[str, str]:
    """A digest of each tensor, to the last bit."""
    return {
        name: hashlib.sha256(
            (values[:SECONDS_AT] if name.startswith(METER) else values).tobytes()
        ).hexdigest()
        for name, values in load_file(path).items()
    }
