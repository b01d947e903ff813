"""metrics.jsonl of a run: one JSON object a line, for each logged step and each validation.

Knows lines and their steps, nothing of what was measured.
"""

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from mt_cli.artefacts.files import (
    is_there,
    open_to_append,
    opened,
    write_atomically,
)
from mt_cli.artefacts.json_files import parse_json
from mt_cli.artefacts.write_errors import write_errors_explained

MOST_BYTES, MOST_LINE_BYTES = 1 << 30, 1 << 20


def read_metrics(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Step and content of each record in `path`; unfinished lines are skipped.

    Raises:
        DataError: something else than a file stands there, or it is too large.
    """
    if not is_there(path):
        return
    with opened(path, most=MOST_BYTES) as file:
        for line in iter(functools.partial(file.readline, MOST_LINE_BYTES), b""):
            with contextlib.suppress(ValueError):
                record = parse_json(line)
                if isinstance(record, dict) and isinstance(record.get("step"), int):
                    yield record["step"], record


def append_metrics(path: Path, record: Mapping[str, object]) -> None:
    """Add a line to `path`.

    Raises:
        ResourceError: the disk is full.
    """
    line = f"{json.dumps(record, allow_nan=False)}\n".encode()
    with write_errors_explained(path, path), open_to_append(path) as file:
        file.write(line)


def forget_metrics_after(path: Path, step: int) -> None:
    """Drop the lines of later updates, which a kill lost, and a last line that it left unfinished."""
    kept = [record for at, record in read_metrics(path) if at <= step]
    write_atomically(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
