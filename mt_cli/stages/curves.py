"""The curves of a training, read from its metrics.jsonl.

Knows records and numbers; draws nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from mt_cli.artefacts.files import is_there
from mt_cli.artefacts.metrics import Record
from mt_cli.artefacts.run import open_run
from mt_cli.errors import DataError


@dataclass(frozen=True)
class Point:
    """A value after `step` updates."""

    step: int
    value: float


@dataclass(frozen=True)
class Curves:
    """What a run measured of itself, each curve by ascending steps."""

    name: str
    train_loss: tuple[Point, ...]
    """What is minimised, per target token: the smoothed loss."""
    train_nll: tuple[Point, ...]
    """Negative log-likelihood per target token, in nats, with dropout: what `val_nll` compares with."""
    lr: tuple[Point, ...]
    val_nll: tuple[Point, ...]
    """The same of the validation split, without dropout."""
    bleu: tuple[Point, ...]
    bleu_signatures: tuple[str, ...]
    """Of the points of `bleu`: one, unless sacreBLEU changed between two sessions."""

    def as_json(self) -> dict[str, object]:
        """The form that `plot --json` prints: each curve as pairs of step and value."""
        return {
            "name": self.name,
            "bleu_signatures": list(self.bleu_signatures),
            "train_loss": _pairs(self.train_loss),
            "train_nll": _pairs(self.train_nll),
            "lr": _pairs(self.lr),
            "val_nll": _pairs(self.val_nll),
            "bleu": _pairs(self.bleu),
        }


def curves_of_run(run_dir: Path) -> Curves:
    """The curves of the run in `run_dir`, named like the folder.

    Raises:
        UsageError: it is no run folder.
        DataError: its metrics are missing or damaged, or there are none yet.
    """
    run = open_run(run_dir)
    if not is_there(run.metrics_path):
        raise DataError(f"{run.metrics_path}: no such file; only a folder that train wrote has it")
    return curves_of(run.metrics(), name=run_dir.resolve().name, source=run.metrics_path)


def curves_of(records: Iterable[Record], *, name: str, source: Path) -> Curves:
    """The curves of `records`, those of the file `source`, which an error names.

    Raises:
        DataError: a record lacks a value or is out of order, or there is nothing to draw.
    """
    records = list(records)
    steps = [record for record in records if record.kind == "step"]
    validations = [record for record in records if record.kind == "validation"]
    if not steps and not validations:
        raise DataError(f"{source}: holds no measurement yet; go on training with --resume")
    for kind in (steps, validations):
        for before, after in pairwise(kind):
            if after.step <= before.step:
                raise DataError(
                    f"{after.place}: step {after.step} comes after step {before.step}; the file is damaged"
                )
    return Curves(
        name=name,
        train_loss=_points(steps, "loss"),
        train_nll=_points(steps, "nll"),
        lr=_points(steps, "lr"),
        val_nll=_points(validations, "nll"),
        bleu=_points(validations, "bleu"),
        bleu_signatures=tuple(dict.fromkeys(record.text("bleu_signature") for record in validations)),
    )


def _points(records: Iterable[Record], key: str) -> tuple[Point, ...]:
    return tuple(Point(record.step, record.number(key)) for record in records)


def _pairs(points: Sequence[Point]) -> list[list[float]]:
    return [[point.step, point.value] for point in points]
