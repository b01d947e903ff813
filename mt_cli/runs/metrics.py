"""metrics.jsonl: one JSON object a line, for each logged step and each validation."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from mt_cli.errors import DataError
from mt_cli.machine.files import MAX_TEXT_BYTES, read_file, write_atomically, write_errors_named

METRICS_FILE = "metrics.jsonl"
Record = dict[str, object]


def read_metrics(path: Path) -> list[Record]:
    """The records of the file `path`, but for an unfinished last line; none if there is no file.

    Raises:
        DataError: a line is damaged.
    """
    if not path.exists():
        return []
    records = []
    lines = read_file(path, max_bytes=MAX_TEXT_BYTES).split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        match record:
            case {"kind": str(), "step": int()}:
                records.append(record)
            case _:
                raise DataError(
                    f"{path}: line {number}: damaged: no JSON with kind and step; delete this "
                    "line; the others are still good"
                )
    return records


def append_metrics(path: Path, record: Mapping[str, object]) -> None:
    """Add a line to the file `path`."""
    with write_errors_named(path), path.open("ab") as file:
        file.write(f"{json.dumps(record, allow_nan=False)}\n".encode())


def truncate_metrics(path: Path, *, after_step: int) -> None:
    """Drop the lines of later updates, which a kill lost, and an unfinished last line."""
    kept = []
    for record in read_metrics(path):
        if number_in(record, "step", path=path) <= after_step:
            kept.append(f"{json.dumps(record)}\n")
    write_atomically(path, "".join(kept).encode())


def number_in(record: Mapping[str, object], key: str, *, path: Path) -> float:
    """The number under `key` of a record of the file `path`.

    Raises:
        DataError: there is none.
    """
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(
            f"{path}: step {record.get('step')}: damaged: expected a number in '{key}', "
            f"found {value!r}"
        )
    return float(value)
