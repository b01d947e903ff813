"""Damage done to files on purpose: every flipped bit, and things that stand in place of a file."""

import hashlib
import json
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

from mt_cli.artefacts.json_files import sealed, write_json
from mt_cli.errors import MtCliError

IMPOSTORS: dict[str, Callable[[Path], None]] = {
    "link to a file": lambda path: path.symlink_to(__file__),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "broken link": lambda path: path.symlink_to("nowhere"),
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
}
"""What can stand in place of a file, each by the function that puts it there."""


def replace_by(kind: str, path: Path) -> None:
    """Put an impostor in place of the file `path`."""
    path.unlink(missing_ok=True)
    IMPOSTORS[kind](path)


def without_seal(document: Path) -> bytes:
    """Take the seal from `document`, as if an early version had written it, and return what was there."""
    before = document.read_bytes()
    unsealed = {key: value for key, value in json.loads(before).items() if key != "seal"}
    document.write_text(json.dumps(unsealed), encoding="utf-8")
    return before


def rehash(folder: Path, name: str, data: bytes) -> None:
    """Replace a file, and its hash in the folder's manifest with it, as no accident would."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["sha256"][name] = hashlib.sha256(data).hexdigest()
    write_json(folder / "manifest.json", sealed(manifest))


def accepted_flips(path: Path, read: Callable[[], object]) -> list[str]:
    """Flips of one bit of `path` after which `read` succeeds and yet tells something else than before."""
    whole, expected = path.read_bytes(), read()
    accepted = []
    with path.open("r+b", buffering=0) as file:
        for at, bit in product(range(len(whole)), range(8)):
            os.pwrite(file.fileno(), bytes([whole[at] ^ 1 << bit]), at)
            if _differs(read, expected):
                accepted.append(f"byte {at}, bit {bit}")
            os.pwrite(file.fileno(), whole[at : at + 1], at)
    return accepted


def _differs(read: Callable[[], object], expected: object) -> bool:
    try:
        return read() != expected
    except MtCliError:
        return False
