"""Encoded sentences and raw lines on disk: written piece by piece, read by memory map.

Knows arrays and files, nothing of how they were made.
"""

import tokenize
from pathlib import Path
from typing import Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from mt_cli.artefacts.files import opened
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.split import EncodedSplit, IdArray, IdType, Sentences
from mt_cli.errors import DataError

Side = Literal["src", "tgt"]
NOT_AN_ARRAY = (
    DataError, OSError, EOFError, ValueError,
    SyntaxError, tokenize.TokenError, RecursionError, MemoryError,  # of a header that is parsed as Python
)  # fmt: skip
"""What NumPy raises where there is no array."""
SIDES: tuple[Side, Side] = ("src", "tgt")


def lines_path(folder: Path, split: str, side: Side) -> Path:
    """Path of the raw lines of a side."""
    return folder / f"{split}.{side}.txt"


def open_split(folder: Path, split: str) -> EncodedSplit:
    """The encoded pairs of `split`, memory-mapped.

    Raises:
        DataError: a file is missing or is no such array.
    """
    src, tgt = _open_side(folder, split, "src"), _open_side(folder, split, "tgt")
    if len(src) != len(tgt):
        raise DataError(f"{folder}: {split} has {len(src):,} sources, but {len(tgt):,} targets")
    return EncodedSplit(src, tgt)


class SplitWriter:
    """Files of one split, filled piece by piece; complete after its `with` block."""

    def __init__(self, folder: Path, split: str, *, src_type: IdType, tgt_type: IdType) -> None:
        self._sides = [
            _SideWriter(folder, split, side, id_type)
            for side, id_type in zip(SIDES, (src_type, tgt_type), strict=True)
        ]

    def write(self, pairs: EncodedPairs) -> None:
        """Append `pairs`: their ids and their raw lines."""
        src, tgt = self._sides
        src.write(pairs.split.src, [line for line, _ in pairs.kept])
        tgt.write(pairs.split.tgt, [line for _, line in pairs.kept])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for side in self._sides:
            side.close()


class _SideWriter:
    def __init__(self, folder: Path, split: str, side: Side, id_type: IdType) -> None:
        self._ids = _ArrayFile(_ids_path(folder, split, side), np.dtype(id_type))
        self._offsets = _ArrayFile(_offsets_path(folder, split, side), np.dtype(np.int64))
        self._offsets.append(np.zeros(1, np.int64))
        self._lines = lines_path(folder, split, side).open("wb")

    def write(self, sequences: Sentences, lines: list[bytes]) -> None:
        self._offsets.append(sequences.offsets[1:] + self._ids.length)
        self._ids.append(sequences.ids)
        self._lines.write(b"".join(line + b"\n" for line in lines))

    def close(self) -> None:
        self._ids.close()
        self._offsets.close()
        self._lines.close()


class _ArrayFile:
    """A one-dimensional .npy file whose length is known only at the end."""

    def __init__(self, path: Path, dtype: np.dtype[np.generic]) -> None:
        self.length = 0
        self._dtype = dtype
        self._file = path.open("wb")
        self._write_header()
        self._data_begin = self._file.tell()

    def append(self, values: NDArray[np.generic]) -> None:
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()
        # NumPy leaves room in the header for the first axis to grow.
        assert self._file.tell() == self._data_begin
        self._file.close()

    def _write_header(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self.length,),
        }
        np.lib.format.write_array_header_1_0(self._file, header)


def _ids_path(folder: Path, split: str, side: Side) -> Path:
    return folder / f"{split}.{side}.npy"


def _offsets_path(folder: Path, split: str, side: Side) -> Path:
    return folder / f"{split}.{side}.offsets.npy"


def _open_side(folder: Path, split: str, side: Side) -> Sentences:
    ids = _map(_ids_path(folder, split, side), np.uint16, np.int32)
    path = _offsets_path(folder, split, side)
    offsets = _map(path, np.int64)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids) or bool((np.diff(offsets) < 0).any()):
        raise DataError(f"{path}: not where the sentences of {len(ids):,} ids begin; prepare the data again")
    return Sentences(cast("IdArray", ids), cast("NDArray[np.int64]", offsets))


def _map(path: Path, *types: type[np.generic]) -> NDArray[np.generic]:
    try:
        with opened(path):  # np.load alone would wait for ever where a pipe stands
            array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
    except NOT_AN_ARRAY as error:
        raise DataError(f"{path}: cannot be read as an array ({error}); prepare the data again") from error
    if array.dtype.type not in types or array.ndim != 1:
        raise DataError(f"{path}: {array.dtype} numbers of shape {array.shape} are not what belongs there")
    return array
