"""The tasks of a GPU session: their commands, and how long each may take.

Knows commands and folders, never how they are run.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Device = Literal["cuda", "cpu"]

SAVING_S = 30
"""What a training is left to validate and to save, once its time is over."""
READY_MODEL = Path("data/models/multi30k-tiny")
"""It lies in the repository, so the checks of a model wait for no training."""


@dataclass(frozen=True)
class Task:
    """One command, in order."""

    name: str
    command: tuple[str, ...]
    limit_s: float = math.inf
    """It is told to end after so many seconds, or when the session's time is over."""
    least_s: float = 0.0
    """With less time than this, it is left out."""
    needs: tuple[Path, ...] = ()
    """Without one of these, the task is left out."""
    run: Path | None = None
    """The run folder of a training. It has all the time that is left, and is over when its status says so."""


@dataclass(frozen=True)
class Training:
    """A config, and the run that is trained by it."""

    config: Path
    run: Path


def trainings(out: Path, *, is_quick: bool) -> list[Training]:
    """The trainings of a session that writes below `out`."""
    names = ["sample"] if is_quick else ["multi30k-strong", "multi30k-best"]
    return [Training(Path(f"configs/{name}.toml"), out / "runs" / name) for name in names]


def plan(out: Path, device: Device, *, is_quick: bool) -> Iterator[Task]:
    """All tasks, the most important first, should time run out."""
    # Warnings of the versions that a GPU machine happens to have are no failures.
    options = ("-m", "gpu", "--gpu-device", device, "-rs", "-W", "default")
    yield Task("tests", (*_module("pytest"), *options, "tests/test_gpu.py"), limit_s=240)
    for precision in ("fp32", "bf16"):
        yield Task(
            f"doctor, {precision}",
            (*_mt_cli("doctor"), str(READY_MODEL), "--device", device, "--precision", precision),
            limit_s=120,
        )
    first, *others = trainings(out, is_quick=is_quick)
    yield from _train_and_evaluate(first, device, is_quick=is_quick)
    lines = ["--split", "test", "--rounds", "1", "--lines", "20"] if is_quick else ["--rounds", "2"]
    yield Task(
        "bench decode",
        (*_module("benchmarks.decode"), str(first.run), "--device", device, *lines),
        limit_s=420,
        least_s=150,
        needs=(first.run / "best.txt",),
    )
    rounds = ["--rounds", "1", "--updates", "3"] if is_quick else ["--rounds", "3", "--updates", "70"]
    yield Task(
        "bench train",
        (*_module("benchmarks.train"), str(first.config), "--device", device, *rounds),
        limit_s=300,
        least_s=120,
        needs=(_prepared_for(first),),
    )
    for training in others:
        yield from _train_and_evaluate(training, device, is_quick=is_quick)


def _train_and_evaluate(training: Training, device: Device, *, is_quick: bool) -> Iterator[Task]:
    name = training.config.stem
    options = ["--run", str(training.run), "--device", device]
    options += ["--max-steps", "80"] if is_quick else []
    options += ["--resume"] if (training.run / "manifest.json").exists() else []
    yield Task(
        f"train {name}",
        (*_mt_cli("train"), str(training.config), *options),
        least_s=SAVING_S,
        needs=(_prepared_for(training),),
        run=training.run,
    )
    for search, flags in (("greedy", ()), ("beam 5", ("--beam-size", "5", "--length-penalty", "1.4"))):
        yield Task(
            f"evaluate {name}, {search}",
            (*_mt_cli("evaluate"), str(training.run), "--device", device, *flags),
            limit_s=90,
            least_s=20,
            needs=(training.run / "best.txt",),
        )


def _prepared_for(training: Training) -> Path:
    return Path("data/prepared") / training.config.stem


def _module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name)


def _mt_cli(verb: str) -> tuple[str, ...]:
    return (*_module("mt_cli"), verb)
