"""metrics.jsonl: one record for each logged update and each validation."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from mt_cli.errors import DataError
from mt_cli.machine.files import MAX_TEXT_BYTES, errors_naming, parsed, read_file, write_atomically

Record = dict[str, object]


def read_metrics(path: Path) -> list[Record]:
    """Read all records, except for an unfinished last line; empty if there is no file.

    Raises:
        DataError: a line is damaged.
    """
    if not path.exists():
        return []
    records = []
    lines = read_file(path, max_bytes=MAX_TEXT_BYTES).split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        place = f"{path}: line {number}"
        record = parsed(dict[str, object], line, place)
        match record:
            case {"kind": "step" | "validation", "step": int()}:
                records.append(record)
            case _:
                raise DataError(f"{place}: damaged; delete this line, the others are fine")
    return records


def append_metrics(path: Path, record: Mapping[str, object]) -> None:
    """Append a record to the file `path`."""
    with errors_naming(path), path.open("ab") as file:
        file.write(f"{json.dumps(record, allow_nan=False)}\n".encode())


def truncate_metrics(path: Path, *, after_step: int) -> None:
    """Drop records after update `after_step`, lost in a kill, and an unfinished last line."""
    kept = []
    for record in read_metrics(path):
        if number_in(record, "step", path=path) <= after_step:
            kept.append(f"{json.dumps(record)}\n")
    write_atomically(path, "".join(kept).encode())


def number_in(record: Mapping[str, object], key: str, *, path: Path) -> float:
    """The number under `key` in a record of the file `path`.

    Raises:
        DataError: the value is missing or not a number.
    """
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(
            f"{path}: step {record.get('step')}: damaged: {key} is {value!r}, not a number"
        )
    return float(value)
