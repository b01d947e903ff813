"""Prepared data that are sealed as they should be, and whose arrays, counts and lines are not."""

import io
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faults.malformed.malformation import (
    ESCAPE,
    EVALUATE,
    PREPARE,
    PREPARED,
    TOO_DEEP,
    TRAIN,
    Malformation,
    edit,
    list_hash,
    replace_listed,
)

MANIFEST = PREPARED / "manifest.json"
DOCUMENTS: Mapping[str, Mapping[str, object]] = {
    "negative pairs": {"pairs": {"train": -1, "val": -1, "test": -1}},
    "pairs without end": {"pairs": {"train": 10**18, "val": 10**18, "test": 10**18}},
    "fewer pairs than there are": {"pairs": {"train": 1, "val": 1, "test": 1}},
    "pairs that are words": {"pairs": {"train": ESCAPE}},
    "no training pairs": {"pairs": {}},
    "a split whose name is an escape": {"pairs": {ESCAPE: 1}},
    "another format": {"format": 2},
    "an unknown key": {ESCAPE: 1},
    "files that are a list": {"outputs": []},
    "no files": {"outputs": {}},
    "a config that is a word": {"data": ESCAPE},
}
NAMES: Mapping[str, str] = {
    "above": "../../../../beside/kept.txt",
    "absolute": "/etc/hostname",
    "a NUL": "a\0b",
    "half a character": "\ud800",
    "very long": "x" * 100_000,
    "a folder": "tokenizer",
}


def _array(values: object, dtype: object = np.uint16) -> NDArray[np.generic]:
    return np.array(values, dtype=dtype)  # type: ignore[call-overload,no-any-return]


IDS: Mapping[str, NDArray[np.generic]] = {
    "floats": _array([0.5] * 200, np.float32),
    "objects": _array([ESCAPE, None], object),
    "words": _array(["a"] * 200, "U9"),
    "a matrix": _array([[4] * 200] * 2),
    "nothing": _array([]),
    "ids that no vocabulary has": _array([65_535] * 1000),
    "negative ids": _array([-1] * 1000, np.int32),
}
"""Arrays that hold no ids of sentences."""
OFFSETS: Mapping[str, NDArray[np.generic]] = {
    "beyond the end": _array([0] + [10**15] * 24, np.int64),
    "that fall": _array(range(100, 75, -1), np.int64),
    "that are negative": _array(range(-25, 0), np.int64),
    "of too few sentences": _array([0, 1], np.int64),
    "of nothing": _array([], np.int64),
    "that are floats": _array([0.0] * 25, np.float64),
}
HEADERS: Mapping[str, str] = {
    "a shape without end": "{'descr': '<u2', 'fortran_order': False, 'shape': (1000000000000000,), }",
    "a negative shape": "{'descr': '<u2', 'fortran_order': False, 'shape': (-1,), }",
    "a call": "__import__('os').system('touch ../beside/owned')",
    "too many brackets": "(" * 5000,
    "no text": "\0" * 100,
}


def malformed_prepared() -> Iterator[Malformation]:
    """Everything malformed that stands in place of prepared data."""
    for name, changes in DOCUMENTS.items():
        yield Malformation(f"prepared data with {name}", partial(_edit, changes=changes), TRAIN)
    for name, path in NAMES.items():
        yield Malformation(f"prepared data that list {name}", partial(_list, name=path), TRAIN)
    for name, array in IDS.items():
        yield Malformation(
            f"sentences that are {name}", partial(_relist, name="train.src.npy", content=_saved(array)), TRAIN
        )
    for name, array in OFFSETS.items():
        yield Malformation(
            f"offsets {name}", partial(_relist, name="train.src.offsets.npy", content=_saved(array)), TRAIN
        )
    for name, header in HEADERS.items():
        yield Malformation(
            f"an array with {name}",
            partial(_relist, name="train.tgt.npy", content=_with_header(header)),
            TRAIN,
        )
    for name in ("train.src.npy", "train.src.offsets.npy", "val.tgt.txt", "tokenizer/tokenizer.json"):
        yield Malformation(f"nothing for the data's {name}", partial(_relist, name=name, content=b""), TRAIN)
    yield Malformation(
        "a report that is too deep", partial(_relist, name="report.json", content=TOO_DEEP), PREPARE
    )
    yield Malformation("a report of nothing", partial(_relist, name="report.json", content=b"{}"), PREPARE)
    yield Malformation(
        "lines that are too few", partial(_relist, name="test.tgt.txt", content=b"one\n"), EVALUATE
    )
    yield Malformation("prepared data whose array is a link to a device", _link_array, TRAIN)
    yield Malformation("prepared data whose manifest is a pipe", _pipe_manifest, TRAIN)


def _edit(folder: Path, *, changes: Mapping[str, object]) -> None:
    edit(folder / MANIFEST, changes)


def _list(folder: Path, *, name: str) -> None:
    list_hash(folder / MANIFEST, name, "0" * 64)


def _relist(folder: Path, *, name: str, content: bytes) -> None:
    replace_listed(folder / PREPARED / name, content)


def _saved(array: NDArray[np.generic]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def _with_header(header: str) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 64


def _link_array(folder: Path) -> None:
    path = folder / PREPARED / "train.src.npy"
    path.unlink()
    path.symlink_to("/dev/zero")


def _pipe_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)
