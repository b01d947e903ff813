"""JSON files: strict, bounded, and with a seal that tells when any part of them has changed.

Knows JSON objects, never what they mean.

A sealed document holds the sha256 of all its other keys under `seal`. Versions before it wrote none.
"""

import functools
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mt_cli.artefacts.files import read_file, sha256_bytes, write_atomically
from mt_cli.errors import DataError

log = logging.getLogger(__name__)

SEAL = "seal"
MOST_BYTES = 1 << 24
"""Of a JSON file; the largest that this program writes have some kilobytes."""
DEEPEST = 32
"""Objects and lists inside of one another."""
MOST_DIGITS = 40
"""Of a whole number; those of 64 bits have 20."""


def write_json(path: Path, value: object, *, below: Path | None = None) -> None:
    """Write `value` as readable JSON, atomically; from the folder `below` on without following links."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # Invalid UTF-8 in a path is a lone surrogate here; it is written as `\udcff`, which JSON reads back.
    write_atomically(path, text.encode(errors="backslashreplace"), below=below)


def read_json(path: Path, *, below: Path | None = None) -> dict[str, object]:
    """The JSON object in `path`.

    Raises:
        DataError: missing, not a JSON object, or too large.
    """
    data = read_file(path, most=MOST_BYTES, below=below)
    try:
        value = parse_json(data)
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error}); the file is damaged") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def parse_json(data: bytes) -> object:
    """The JSON value in `data`, which is strict: no NaN, no infinity, and nothing that is too deep.

    Raises:
        ValueError: it is not such a value.
    """
    try:
        value = json.loads(
            data, parse_constant=_refuse_constant, parse_int=_whole_number, parse_float=_finite_number
        )
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels deep") from None
    if any(depth > DEEPEST for depth in _depths(value)):
        raise ValueError(f"more than {DEEPEST} levels deep")
    return value


# Seals


def sealed(document: Mapping[str, object]) -> dict[str, object]:
    """`document` with its seal at the end."""
    unsealed = {key: value for key, value in document.items() if key != SEAL}
    return {**unsealed, SEAL: sha256_bytes(json.dumps(unsealed, sort_keys=True).encode())}


def read_sealed(
    path: Path,
    *,
    below: Path | None = None,
    renewed_by: Callable[[Mapping[str, object]], str] | None = None,
) -> dict[str, object]:
    """The JSON object in `path` without its seal, which is checked.

    Of an object without one, a warning says once that the command `renewed_by` it writes the seal.

    Raises:
        DataError: the file cannot be read, or any part of it was altered.
    """
    document = read_json(path, below=below)
    seal = document.pop(SEAL, None)
    if seal is None:
        if renewed_by is not None:
            _warn_once(str(path), renewed_by(document))
    elif seal != sealed(document)[SEAL]:
        raise DataError(f"{path}: altered or damaged: its seal does not fit; restore it from a copy")
    return document


@functools.cache
def _warn_once(path: str, renewed_by: str) -> None:
    log.warning("%s: has no seal, so damage to it may go unnoticed; %s writes one", path, renewed_by)


def _depths(value: object) -> Iterator[int]:
    """How deep each object and list of `value` stands, the outermost at 1."""
    level = 0
    inner = [value]
    while inner := [each for each in inner if isinstance(each, dict | list)]:
        level += 1
        yield level
        inner = [each for outer in inner for each in (outer.values() if isinstance(outer, dict) else outer)]


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:MOST_DIGITS]} is no finite number")
    return number
