"""The curves of a training, read from its metrics.jsonl.

Knows records and numbers; draws nothing.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from mt_cli.artefacts.files import is_there, read_file
from mt_cli.artefacts.run import open_run
from mt_cli.errors import DataError

MOST_BYTES = 1 << 30
"""Of metrics."""


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
    path = open_run(run_dir).metrics_path
    if not is_there(path):
        raise DataError(f"{path}: no such file; only a folder that train wrote has it")
    return read_curves(read_file(path, most=MOST_BYTES), name=run_dir.resolve().name, source=path)


def read_curves(content: bytes, *, name: str, source: Path) -> Curves:
    """The curves in `content`, the bytes of a metrics.jsonl; errors name `source`.

    A last line without its end is left out: training may be writing it, or was killed there.

    Raises:
        DataError: a line is damaged, or there is nothing to draw.
    """
    *lines, _unfinished = content.split(b"\n")
    records = [_Record(line, f"{source}: line {number}") for number, line in enumerate(lines, start=1)]
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
        train_loss=tuple(record.point("loss") for record in steps),
        train_nll=tuple(record.point("nll") for record in steps),
        lr=tuple(record.point("lr") for record in steps),
        val_nll=tuple(record.point("nll") for record in validations),
        bleu=tuple(record.point("bleu") for record in validations),
        bleu_signatures=tuple(dict.fromkeys(record.text("bleu_signature") for record in validations)),
    )


def _pairs(points: Sequence[Point]) -> list[list[float]]:
    return [[point.step, point.value] for point in points]


class _Record:
    """One line of metrics.jsonl, whose values are checked when they are asked for."""

    def __init__(self, line: bytes, place: str) -> None:
        self.place = place
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: not valid JSON ({error}); the file is damaged") from error
        if not isinstance(content, dict):
            raise self._wrong("a JSON object", content)
        self._content: Mapping[str, object] = content
        self.kind = self.text("kind")
        step = content.get("step")
        if isinstance(step, bool) or not isinstance(step, int):
            raise self._wrong("a whole number in 'step'", step)
        self.step = step

    def point(self, key: str) -> Point:
        """The number under `key`."""
        value = self._content.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong(f"a number in '{key}'", value)
        return Point(self.step, float(value))

    def text(self, key: str) -> str:
        """The text under `key`."""
        value = self._content.get(key)
        if not isinstance(value, str):
            raise self._wrong(f"a text in '{key}'", value)
        return value

    def _wrong(self, expected: str, found: object) -> DataError:
        return DataError(f"{self.place}: expected {expected}, found {found!r}; the file is damaged")
