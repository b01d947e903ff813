"""metrics.jsonl of a run: one JSON object a line, for each logged step and each validation.

Each line has a seal of its own. Knows lines, their kinds and steps, nothing of what was measured.
"""

import functools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.files import is_there, open_to_append, opened, write_atomically
from mt_cli.artefacts.json_files import parse_json, sealed, unsealed, warn_of_no_seal
from mt_cli.artefacts.write_errors import write_errors_explained
from mt_cli.errors import DataError

MOST_BYTES, MOST_LINE_BYTES = 1 << 30, 1 << 20
EARLY_KEYS = {
    "kind", "step", "epoch", "loss", "nll", "lr", "grad_norm", "tgt_tokens_per_s", "skipped", "elapsed_s",
    "bleu", "bleu_signature", "is_best", "validation_s",
}  # fmt: skip
"""Of lines that were written before they were sealed."""
REMEDY = "delete this line; the others are still good"


@dataclass(frozen=True)
class Record:
    """What one line says; its values are checked when they are asked for."""

    place: str
    """The file and the number of the line, for errors."""
    kind: str
    step: int
    content: Mapping[str, object]

    def number(self, key: str) -> float:
        """The number under `key`.

        Raises:
            DataError: there is none.
        """
        value = self.content.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise _not_the_expected(self.place, f"a number in '{key}'", value)
        return float(value)

    def text(self, key: str) -> str:
        """The text under `key`.

        Raises:
            DataError: there is none.
        """
        value = self.content.get(key)
        if not isinstance(value, str):
            raise _not_the_expected(self.place, f"a text in '{key}'", value)
        return value


def read_metrics(path: Path, *, warns: bool = True) -> Iterator[Record]:
    """The records in `path`, none where there is no file.

    A last line without its end is left out: training may be writing it, or was killed there. `warns` says
    whether to warn of lines without a seal, which early versions wrote.

    Raises:
        DataError: a line is damaged, something else than a file stands there, or it is too large.
    """
    for record, has_seal in _read(path):
        if warns and not has_seal:
            warn_of_no_seal(path.parent)
        yield record


def append_metrics(path: Path, content: Mapping[str, object]) -> None:
    """Add a line to `path`.

    Raises:
        ResourceError: the disk is full.
    """
    with write_errors_explained(path, path), open_to_append(path) as file:
        file.write(_line(content))


def forget_metrics_after(path: Path, step: int) -> None:
    """Drop the lines of later updates, which a kill lost, and a last line that it left unfinished.

    Raises:
        DataError: a line is damaged.
    """
    kept = [record.content for record in read_metrics(path, warns=False) if record.step <= step]
    write_atomically(path, b"".join(map(_line, kept)))


def seal_metrics(path: Path) -> bool:
    """Seal each line of `path` that has no seal; whether there was one.

    Raises:
        DataError: a line is damaged; then nothing is sealed.
    """
    lines = list(_read(path))
    if all(has_seal for _, has_seal in lines):
        return False
    write_atomically(path, b"".join(_line(record.content) for record, _ in lines))
    return True


def _read(path: Path) -> Iterator[tuple[Record, bool]]:
    """Each record in `path`, and whether its line has a seal."""
    if not is_there(path):
        return
    with opened(path, most=MOST_BYTES) as file:
        lines = iter(functools.partial(file.readline, MOST_LINE_BYTES), b"")
        for number, line in enumerate(lines, start=1):
            place = f"{path}: line {number}"
            if line.endswith(b"\n"):
                yield _parsed(line, place)
            elif not _is_unfinished(line):
                raise DataError(f"{place}: damaged: it does not end where its JSON ends; {REMEDY}")


def _line(content: Mapping[str, object]) -> bytes:
    return f"{json.dumps(sealed(content), allow_nan=False)}\n".encode()


def _parsed(line: bytes, place: str) -> tuple[Record, bool]:
    """What `line` says, and whether it has a seal."""
    try:
        document = parse_json(line)
    except ValueError as error:
        raise DataError(f"{place}: damaged: not valid JSON ({error}); {REMEDY}") from error
    if not isinstance(document, dict):
        raise _not_the_expected(place, "a JSON object", document)
    content, has_seal = unsealed(document, early_keys=EARLY_KEYS, place=place, remedy=REMEDY)
    kind, step = content.get("kind"), content.get("step")
    if not isinstance(kind, str):
        raise _not_the_expected(place, "a text in 'kind'", kind)
    if isinstance(step, bool) or not isinstance(step, int):
        raise _not_the_expected(place, "a whole number in 'step'", step)
    return Record(place, kind, step, content), has_seal


def _is_unfinished(line: bytes) -> bool:
    """Whether `line`, which has no end, may be the beginning of one: nothing comes after its JSON."""
    if len(line) == MOST_LINE_BYTES:
        return False
    try:
        parse_json(line[:-1])
    except ValueError:
        return True
    return False


def _not_the_expected(place: str, expected: str, found: object) -> DataError:
    return DataError(f"{place}: damaged: expected {expected}, found {found!r}; {REMEDY}")
