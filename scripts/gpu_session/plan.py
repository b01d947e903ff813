"""The steps of a GPU session: their commands, and how long each may take.

Knows commands and folders, never how they are run.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Device = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Step:
    """One command, in order."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    """It is told to end after so many seconds."""
    needs: tuple[Path, ...] = ()
    """Without one of these, the step is left out."""
    run: Path | None = None
    """The run folder of a training, which is over when its status says so."""


@dataclass(frozen=True)
class Training:
    """A config that is trained, and how that is measured."""

    config: Path
    run: Path
    limit_s: float
    translated: tuple[Path, ...] = ()
    """Translations of the training text that the config adds."""


def trainings(out: Path, *, is_quick: bool) -> list[Training]:
    """The trainings of a session that writes below `out`."""
    if is_quick:
        return [Training(Path("configs/sample.toml"), out / "runs" / "sample", 60)]
    translated = (Path("data/translated/train.en"), Path("data/translated/train.de"))
    return [
        Training(Path("configs/multi30k-strong.toml"), out / "runs" / "multi30k-strong", 120),
        Training(Path("configs/multi30k-best.toml"), out / "runs" / "multi30k-best", 180, translated),
    ]


def plan(out: Path, device: Device, *, is_quick: bool) -> Iterator[Step]:
    """All steps, the most important first, should time run out."""
    yield Step(
        "tests",
        (*_module("pytest"), "-m", "gpu", "--gpu-device", device, "-rs", "tests/test_gpu.py"),
        120,
    )
    first, *others = trainings(out, is_quick=is_quick)
    yield _train(first, device, is_quick=is_quick)
    yield _evaluate(first, device)
    for precision in ("fp32", "bf16"):
        yield Step(
            f"doctor, {precision}",
            (*_mt_cli("doctor"), str(first.run), "--device", device, "--precision", precision),
            60,
            (first.run / "best.txt",),
        )
    on_device = (str(first.config), "--device", device)
    rounds = ["--rounds", "1", "--updates", "3"] if is_quick else ["--rounds", "2", "--updates", "60"]
    yield Step("bench train", (*_module("benchmarks.train"), *on_device, *rounds), 90)
    lines = ["--split", "test", "--rounds", "1", "--lines", "20"] if is_quick else ["--rounds", "2"]
    yield Step(
        "bench decode",
        (*_module("benchmarks.decode"), str(first.run), "--device", device, *lines),
        90,
        (first.run / "best.txt",),
    )
    for training in others:
        yield _train(training, device, is_quick=is_quick)
        yield _evaluate(training, device)


def _train(training: Training, device: Device, *, is_quick: bool) -> Step:
    options = ["--run", str(training.run), "--device", device]
    options += ["--max-steps", "80"] if is_quick else []
    options += ["--resume"] if (training.run / "manifest.json").exists() else []
    prepared = Path("data/prepared") / training.config.stem
    return Step(
        f"train {training.config.stem}",
        (*_mt_cli("train"), str(training.config), *options, "--time-limit", f"{training.limit_s}s"),
        training.limit_s + 30,
        (prepared, *training.translated),
        training.run,
    )


def _evaluate(training: Training, device: Device) -> Step:
    return Step(
        f"evaluate {training.config.stem}",
        (*_mt_cli("evaluate"), str(training.run), "--device", device),
        60,
        (training.run / "best.txt",),
    )


def _module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name)


def _mt_cli(verb: str) -> tuple[str, ...]:
    return (*_module("mt_cli"), verb)
