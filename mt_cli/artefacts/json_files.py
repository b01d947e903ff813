"""JSON files: strict, bounded, and with a seal that tells when any part of them has changed.

Knows JSON objects, never what they mean.

A sealed document holds the sha256 of all its other keys under `seal`. Early versions wrote none: what they
wrote is known by its keys, and read with a warning that says how to seal it.
"""

import functools
import json
import logging
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from mt_cli.artefacts.files import read_file, sha256_bytes, write_atomically
from mt_cli.errors import DataError, command_line

log = logging.getLogger(__name__)

SEAL = "seal"
MOST_BYTES = 1 << 24
"""Of a JSON file; the largest that this program writes have some kilobytes."""
RESTORE = "restore it from a copy"
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
    early_keys: Collection[str],
    below: Path,
    warns: bool = True,
    seal_command: str | None = None,
) -> dict[str, object]:
    """The JSON object in `path`, which is in the folder `below`, without its seal, which is checked.

    An object without one is of an early version if it has no other keys than `early_keys`. Then, if this
    `warns`, a warning, once for the whole folder, names the `seal_command`; None is that of a run folder.

    Raises:
        DataError: the file cannot be read, or any part of it was altered.
    """
    document, has_seal = unsealed(read_json(path, below=below), early_keys=early_keys, place=str(path))
    if warns and not has_seal:
        warn_of_no_seal(below, seal_command)
    return document


def unsealed(
    document: Mapping[str, object],
    *,
    early_keys: Collection[str],
    place: str,
    remedy: str = RESTORE,
) -> tuple[dict[str, object], bool]:
    """`document` without its seal, which is checked, and whether it has one; `place` is where it was read.

    Raises:
        DataError: any part of it was altered, or it has other keys than `early_keys` and no seal.
    """
    rest = {key: value for key, value in document.items() if key != SEAL}
    if SEAL in document:
        if document != sealed(rest):
            raise DataError(f"{place}: altered or damaged: its seal does not fit; {remedy}")
    elif unknown := sorted(rest.keys() - set(early_keys)):  # such as the name of the seal, damaged
        raise DataError(f"{place}: unknown key {unknown[0]!r} and no seal: damaged; {remedy}")
    return rest, SEAL in document


def seal_command_of(run: Path) -> str:
    """The command that checks the run folder `run` and seals its documents."""
    return command_line("inspect", run, "--seal")


@functools.cache
def warn_of_no_seal(folder: Path, seal_command: str | None = None) -> None:
    """Say once that `folder` has a document without a seal, and that `seal_command` seals it.

    None is the command for a run folder.
    """
    log.warning(
        "%s: made by an early version, without a seal, so damage may go unnoticed; to check and seal it: %s",
        folder,
        seal_command or seal_command_of(folder),
    )


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
