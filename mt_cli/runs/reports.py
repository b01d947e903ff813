"""What a training reports: status.json, and metrics.jsonl with its updates and validations."""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mt_cli.errors import DataError
from mt_cli.machine.files import MAX_TEXT_BYTES, errors_naming, read_file, write_atomically
from mt_cli.runs.checkpoint import Count

TrainingState = Literal[
    "running", "finished", "early_stop", "time_limit", "stopped", "diverged", "failed"
]
"""Where a training stands, or how it ended."""
FINISHED: tuple[TrainingState, ...] = ("finished", "early_stop")


class Report(BaseModel):
    """A JSON object that a training writes; a later version may add keys."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, extra="allow")


class Status(Report):
    """status.json: where a training stands; None is unknown."""

    state: TrainingState | None = None
    reason: str = ""
    """Why it ended early."""
    step: Count | None = None
    total_steps: Count | None = None
    epoch: Count | None = None
    best_step: Count | None = None
    best_score: float | None = None
    best_by: str | None = None
    """What `best_score` is: `bleu` or `loss`."""
    elapsed_s: float | None = None
    """Seconds of training."""


class StepRecord(Report):
    """A logged update, with means over all updates since the previous record."""

    kind: Literal["step"] = "step"
    step: Count
    epoch: Count
    loss: float
    """What is minimized, per target token."""
    nll: float
    """Negative log-likelihood per target token, in nats, with dropout."""
    lr: float
    grad_norm: float
    """Of the latest update that was not skipped, before clipping."""
    tgt_tokens_per_s: float
    skipped: int
    """Number of updates with a gradient that was not finite."""
    elapsed_s: float = 0.0
    """Seconds of training."""


class ValidationRecord(Report):
    """A validation."""

    kind: Literal["validation"] = "validation"
    step: Count
    nll: float
    """Negative log-likelihood per target token, in nats, without dropout."""
    bleu: float
    bleu_signature: str
    is_best: bool
    elapsed_s: float
    validation_s: float
    weights: str | None = None
    """sha256 of the validated weights, if they were rounded for this copy of the run."""


Record = StepRecord | ValidationRecord
_ADAPTER: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


def read_metrics(path: Path) -> tuple[list[StepRecord], list[ValidationRecord]]:
    """Read all records, except for an unfinished last line; none if there is no file.

    Raises:
        DataError: a line is damaged.
    """
    records = _read_all(path)
    steps = [record for record in records if isinstance(record, StepRecord)]
    return steps, [record for record in records if isinstance(record, ValidationRecord)]


def append_metrics(path: Path, record: Record) -> None:
    """Append a record to the file `path`."""
    with errors_naming(path), path.open("ab") as file:
        file.write(_line_of(record))


def truncate_metrics(path: Path, *, after_step: int) -> None:
    """Drop records after update `after_step`, lost in a kill, and an unfinished last line."""
    kept = [record for record in _read_all(path) if record.step <= after_step]
    write_atomically(path, b"".join(map(_line_of, kept)))


def mark_validation(path: Path, *, step: int, weights: str) -> None:
    """Mark the validation after update `step` as one of other `weights`, by their sha256."""
    records = _read_all(path)
    for i, record in enumerate(records):
        if isinstance(record, ValidationRecord) and record.step == step:
            records[i] = record.model_copy(update={"weights": weights})
    write_atomically(path, b"".join(map(_line_of, records)))


def _read_all(path: Path) -> list[Record]:
    if not path.exists():
        return []
    records: list[Record] = []
    lines = read_file(path, max_bytes=MAX_TEXT_BYTES).split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            records.append(_ADAPTER.validate_json(line))
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise DataError(
                f"{path}: line {number}: damaged: {reason}; delete this line, the others are fine"
            ) from error
    return records


def _line_of(record: Record) -> bytes:
    return f"{json.dumps(record.model_dump(exclude_none=True))}\n".encode()
