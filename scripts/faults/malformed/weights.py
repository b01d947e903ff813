"""Weights that are no weights of the model, in checkpoints whose hashes are right."""

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from faults.malformed.malformation import (
    ESCAPE,
    RESUME,
    RUN,
    TOO_DEEP,
    TRANSLATE,
    Malformation,
    best_checkpoint,
    edit,
    replace_listed,
)

Header = dict[str, Any]
Change = Callable[[Header], Header]
"""Makes another header of one; the tensors' bytes stay."""
NAN, INFINITY = struct.pack("<f", math.nan), struct.pack("<f", -math.inf)


def _of_kind(dtype: str) -> Change:
    """Every tensor is of `dtype` and holds as many numbers as its bytes."""
    size = {"F64": 8, "I64": 8, "C64": 8, "BF16": 2, "U8": 1, "F4": 1, ESCAPE: 4}[dtype]

    def change(header: Header) -> Header:
        return {
            name: {**entry, "dtype": dtype, "shape": [math.prod(entry["shape"]) * 4 // size]}
            for name, entry in header.items()
        }

    return change


def _first(**changes: object) -> Change:
    """The first tensor is described otherwise."""

    def change(header: Header) -> Header:
        first = min(header)
        return {**header, first: {**header[first], **changes}}

    return change


def _renamed(name: str) -> Change:
    def change(header: Header) -> Header:
        first, *others = sorted(header)
        return {name: header[first], **{each: header[each] for each in others}}

    return change


def _overlapping(header: Header) -> Header:
    return {name: {**entry, "data_offsets": [0, 4]} for name, entry in header.items()}


def _backwards(header: Header) -> Header:
    return {name: {**entry, "data_offsets": entry["data_offsets"][::-1]} for name, entry in header.items()}


def _many(header: Header) -> Header:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return {**header, **{f"{i}": empty for i in range(200_000)}}


HEADERS: Mapping[str, Change] = {
    "64-bit floats": _of_kind("F64"),
    "whole numbers": _of_kind("I64"),
    "complex numbers": _of_kind("C64"),
    "16-bit floats": _of_kind("BF16"),
    "bytes": _of_kind("U8"),
    "a kind that is an escape": _of_kind(ESCAPE),
    "one tensor missing": lambda header: {name: header[name] for name in sorted(header)[1:]},
    "another tensor": _renamed("more.weight"),
    "a tensor whose name is an escape": _renamed(ESCAPE),
    "a tensor whose name is half a character": _renamed("\ud800"),
    "many tensors": _many,
    "a shape beyond all bounds": _first(shape=[10**12, 10**12]),
    "a shape of a thousand sides": _first(shape=[1] * 1000),
    "a negative shape": _first(shape=[-8, -8]),
    "a shape that is half a number": _first(shape=[0.5]),
    "a shape that is a word": _first(shape=ESCAPE),
    "offsets beyond the end": _first(data_offsets=[0, 10**15]),
    "negative offsets": _first(data_offsets=[-4, 0]),
    "three offsets": _first(data_offsets=[0, 4, 8]),
    "offsets that overlap": _overlapping,
    "offsets that run backwards": _backwards,
    "an unknown key": _first(more=ESCAPE),
}
FILES: Mapping[str, bytes] = {
    "seven bytes": b"\0" * 7,
    "a header without end": struct.pack("<Q", (1 << 63) - 1) + b"{}",
    "a header that is cut off": struct.pack("<Q", 10_000) + b'{"a": ',
    "a header that is a list": struct.pack("<Q", 2) + b"[]",
    "a header that is too deep": struct.pack("<Q", len(TOO_DEEP)) + TOO_DEEP,
    "no tensors": struct.pack("<Q", 2) + b"{}",
    "a header of noise": struct.pack("<Q", 256) + bytes(range(256)),
}


def malformed_weights() -> Iterator[Malformation]:
    """Every file that no weights of the model are in."""
    for name, change in HEADERS.items():
        yield Malformation(f"weights with {name}", partial(_rewrite, change=change), TRANSLATE)
    for name, content in FILES.items():
        yield Malformation(f"weights of {name}", partial(_replace, content=content), TRANSLATE)
    for name, number in {"NaN": NAN, "infinity": INFINITY}.items():
        yield Malformation(f"weights with {name}", partial(_spoil, number=number), TRANSLATE)
    yield Malformation("weights with bytes after their end", _lengthen, TRANSLATE)
    for name in ("whole numbers", "many tensors", "offsets that overlap", "one tensor missing"):
        make = partial(_rewrite_states, change=HEADERS[name])
        yield Malformation(f"a training state with {name}", make, RESUME)
    yield Malformation("hashes of a checkpoint that are a list", partial(_list, value=[]), TRANSLATE)
    yield Malformation(
        "hashes of a checkpoint that are numbers", partial(_list, value={"model.safetensors": 7}), TRANSLATE
    )


def _rewrite(folder: Path, *, change: Change) -> None:
    _change_header(best_checkpoint(folder) / "model.safetensors", change)


def _rewrite_states(folder: Path, *, change: Change) -> None:
    for path in folder.joinpath(RUN).glob("checkpoints/*/state.safetensors"):
        _change_header(path, change)


def _change_header(path: Path, change: Change) -> None:
    header, body = _parts(path.read_bytes())
    text = json.dumps(change(header)).encode()
    replace_listed(path, struct.pack("<Q", len(text)) + text + body)


def _parts(content: bytes) -> tuple[Header, bytes]:
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    return header, content[8 + length :]


def _replace(folder: Path, *, content: bytes) -> None:
    replace_listed(best_checkpoint(folder) / "model.safetensors", content)


def _spoil(folder: Path, *, number: bytes) -> None:
    path = best_checkpoint(folder) / "model.safetensors"
    replace_listed(path, path.read_bytes()[: -len(number)] + number)


def _lengthen(folder: Path) -> None:
    path = best_checkpoint(folder) / "model.safetensors"
    replace_listed(path, path.read_bytes() + b"\0" * 8)


def _list(folder: Path, *, value: object) -> None:
    edit(best_checkpoint(folder) / "manifest.json", {"sha256": value})
