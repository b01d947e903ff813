"""One malformed thing, and what many of them are made of: sealed documents whose hashes are right.

A stranger who makes a run can seal it too: only what its files say is wrong, never their hashes.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.files import sha256_bytes
from mt_cli.artefacts.json_files import sealed

RUN, PREPARED, EXPORTED = Path("runs/tiny"), Path("data/prepared/tiny"), Path("exported/tiny")
TRANSLATE = ("translate", str(RUN), "--text", "Ein Hund.")
TRANSLATE_EXPORTED = ("translate", str(EXPORTED), "--text", "Ein Hund.")
INSPECT = ("inspect", str(RUN))
EVALUATE = ("evaluate", str(RUN))
RESUME = ("train", "tiny.toml", "--resume", "--set", "training.max_epochs=4")
TRAIN = ("train", "tiny.toml", "--run", "runs/new", "--max-steps", "1")
PREPARE = ("prepare", "tiny.toml")
ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e"
"""What a terminal would obey, and an order of letters that hides some of them."""
TOO_DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
TOO_MANY_DIGITS = b'{"format": ' + b"9" * 100_000 + b"}"

Make = Callable[[Path], object]
"""Puts something malformed into the folder in which commands run."""


@dataclass(frozen=True)
class Malformation:
    """Something that is malformed."""

    name: str
    make: Make
    command: tuple[str, ...]
    """What meets it."""
    codes: tuple[int, ...] = (3,)
    """Exit codes that are right."""


def last_checkpoint(folder: Path) -> Path:
    """The newest checkpoint of the run in `folder`."""
    return max(folder.joinpath(RUN, "checkpoints").glob("step-*"))


def best_checkpoint(folder: Path, *, run: Path = RUN) -> Path:
    """The checkpoint that commands use, unless told otherwise."""
    return folder / run / "checkpoints" / folder.joinpath(run, "best.txt").read_text().strip()


def edit(path: Path, changes: Mapping[str, object]) -> None:
    """Change keys of a JSON document, and seal it again."""
    path.write_text(json.dumps(sealed({**json.loads(path.read_bytes()), **changes})))


def replace_listed(path: Path, content: bytes) -> None:
    """Write another `content` into a file, and its hash into the manifest above it."""
    path.write_bytes(content)
    manifest = next(each / "manifest.json" for each in path.parents if (each / "manifest.json").is_file())
    list_hash(manifest, path.relative_to(manifest.parent).as_posix(), sha256_bytes(content))


def list_hash(manifest: Path, name: str, digest: str) -> None:
    """Let `manifest` list the file `name` with this hash."""
    document = json.loads(manifest.read_bytes())
    key = "outputs" if "outputs" in document else "sha256"
    edit(manifest, {key: {**document[key], name: digest}})
