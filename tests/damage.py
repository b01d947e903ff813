"""Damage done to files on purpose."""

import hashlib
import json
from pathlib import Path
from typing import Any


def change_json(path: Path, **changes: object) -> None:
    """Set keys of a JSON file; a key set to None goes."""
    content: dict[str, Any] = json.loads(path.read_bytes())
    content = {key: value for key, value in (content | changes).items() if value is not None}
    path.write_text(json.dumps(content), encoding="utf-8")


def rehash(folder: Path, name: str, data: bytes) -> None:
    """Replace a file, and its hash in the folder's manifest with it, as no accident would."""
    (folder / name).write_bytes(data)
    hashes = json.loads((folder / "manifest.json").read_bytes())["sha256"]
    change_json(folder / "manifest.json", sha256={**hashes, name: hashlib.sha256(data).hexdigest()})


def flip_a_bit(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
