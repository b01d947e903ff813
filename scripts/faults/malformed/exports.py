"""Exported models that are sealed as they should be, and whose files are not."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from faults.malformed.malformation import (
    ESCAPE,
    EXPORTED,
    TOO_DEEP,
    TRANSLATE_EXPORTED,
    Malformation,
    edit,
    list_hash,
    replace_listed,
)

MODEL = EXPORTED / "model.bin"
CONTENTS: Mapping[str, bytes] = {
    "nothing": b"",
    "noise": bytes(range(256)) * 64,
    "zeros": bytes(10_000),
    "ones": b"\xff" * 10_000,
}
DOCUMENTS: Mapping[str, Mapping[str, object]] = {
    "another engine": {"engine": ESCAPE},
    "another format": {"format": 2},
    "no hashes": {"sha256": {}},
    "a quantization that is an escape": {"quantization": ESCAPE},
    "a quantization that is a number": {"quantization": 8},
    "data that are a word": {"prepared": ESCAPE},
}


def malformed_exports(*, has_export: bool) -> Iterator[Malformation]:
    """Everything malformed that stands in place of an exported model, if there is one."""
    if not has_export:
        return
    for name, content in CONTENTS.items():
        yield Malformation(
            f"an engine's model of {name}",
            partial(_relist, name="model.bin", content=content),
            TRANSLATE_EXPORTED,
        )
    yield Malformation("an engine's model that is cut off", _cut, TRANSLATE_EXPORTED)
    yield Malformation("an engine's model that promises too much", _promise, TRANSLATE_EXPORTED)
    yield Malformation(
        "an engine's config that is too deep",
        partial(_relist, name="config.json", content=TOO_DEEP),
        TRANSLATE_EXPORTED,
    )
    yield Malformation(
        "an engine's vocabulary that is too deep",
        partial(_relist, name="shared_vocabulary.json", content=TOO_DEEP),
        TRANSLATE_EXPORTED,
    )
    yield Malformation(
        "an engine's vocabulary of nothing",
        partial(_relist, name="shared_vocabulary.json", content=b"[]"),
        TRANSLATE_EXPORTED,
    )
    for name, changes in DOCUMENTS.items():
        yield Malformation(f"an export with {name}", partial(_edit, changes=changes), TRANSLATE_EXPORTED)
    for name, path in {
        "above": "../../../beside/kept.txt",
        "a NUL": "a\0b",
        "half a character": "\ud800",
    }.items():
        yield Malformation(f"an export that lists {name}", partial(_list, name=path), TRANSLATE_EXPORTED)
    for name in ("config.toml", "model.bin", "config.json", "tokenizer/tokenizer.json"):
        yield Malformation(
            f"a link to a device for an export's {name}", partial(_link, name=name), TRANSLATE_EXPORTED
        )
        yield Malformation(f"a pipe for an export's {name}", partial(_pipe, name=name), TRANSLATE_EXPORTED)


def _relist(folder: Path, *, name: str, content: bytes) -> None:
    replace_listed(folder / EXPORTED / name, content)


def _edit(folder: Path, *, changes: Mapping[str, object]) -> None:
    edit(folder / EXPORTED / "manifest.json", changes)


def _list(folder: Path, *, name: str) -> None:
    list_hash(folder / EXPORTED / "manifest.json", name, "0" * 64)


def _cut(folder: Path) -> None:
    content = (folder / MODEL).read_bytes()
    replace_listed(folder / MODEL, content[: len(content) // 2])


def _promise(folder: Path) -> None:
    """Let a number near the end of what describes the first matrix be as large as can be."""
    content = bytearray((folder / MODEL).read_bytes())
    at = content.index(b"\0", 60)
    content[at + 1 : at + 13] = b"\xff" * 12
    replace_listed(folder / MODEL, bytes(content))


def _link(folder: Path, *, name: str) -> None:
    (folder / EXPORTED / name).unlink()
    (folder / EXPORTED / name).symlink_to("/dev/zero")


def _pipe(folder: Path, *, name: str) -> None:
    (folder / EXPORTED / name).unlink()
    os.mkfifo(folder / EXPORTED / name)
