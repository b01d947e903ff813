"""Encoded splits: flat arrays of ids and where sentences begin, memory-mapped from disk."""

import errno
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Self, cast

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import Side
from mt_cli.errors import DataError
from mt_cli.machine.files import write_errors_named

IDS_TOGETHER = 1 << 22
"""Ids read at a time, so that a memory-mapped corpus need not fit into memory."""


IdArray = NDArray[np.uint16] | NDArray[np.int32]


IdType = type[np.uint16] | type[np.int32]


def id_type(vocab_size: int) -> IdType:
    """The smallest type that holds ids below `vocab_size`."""
    return np.uint16 if vocab_size <= 1 << 16 else np.int32


@dataclass(frozen=True)
class Sentences:
    """Sentences of one side, one after another."""

    ids: IdArray
    offsets: NDArray[np.int64]
    """Sentence i is `ids[offsets[i]:offsets[i + 1]]`."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids in each sentence."""
        return np.diff(self.offsets)

    def lengths_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of ids in each sentence at `indices` (N,): (N,)."""
        return self.offsets[indices + 1] - self.offsets[indices]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> IdArray:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def of(sentences: Sequence[Sequence[int]]) -> "Sentences":
        """`sentences`, one after another."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum()))
        return Sentences(ids, np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))))


@dataclass(frozen=True)
class EncodedSplit:
    """Both sides of a split, line by line."""

    src: Sentences
    tgt: Sentences
    portions: tuple[tuple[int, float], ...] = ()
    """Part by part: number of pairs, and how often an epoch sees each of them on average."""

    def __len__(self) -> int:
        return len(self.src)


def lines_path(folder: Path, split: str, side: Side) -> Path:
    """Path of the raw lines of a side."""
    return folder / f"{split}.{side}.txt"


def _array_paths(folder: Path, split: str, side: Side) -> tuple[Path, Path]:
    """Paths of the ids of a side and of their offsets."""
    return folder / f"{split}.{side}.npy", folder / f"{split}.{side}.offsets.npy"


def open_split(folder: Path, split: str) -> EncodedSplit:
    """The encoded pairs of `split`, memory-mapped.

    Raises:
        DataError: a file is missing or is no such array.
    """
    src = _open_side(*_array_paths(folder, split, "src"))
    tgt = _open_side(*_array_paths(folder, split, "tgt"))
    if len(src) != len(tgt):
        raise DataError(f"{folder}: {split} has {len(src):,} sources, but {len(tgt):,} targets")
    return EncodedSplit(src, tgt)


def _open_side(ids_path: Path, offsets_path: Path) -> Sentences:
    ids = cast("IdArray", _map(ids_path, np.uint16, np.int32))
    offsets = cast("NDArray[np.int64]", _map(offsets_path, np.int64))
    spans_ids = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(ids)
    if not spans_ids or bool((np.diff(offsets) < 0).any()):
        raise DataError(
            f"{offsets_path}: not where the sentences of {len(ids):,} ids begin; prepare again"
        )
    return Sentences(ids, offsets)


CANNOT_MAP = (errno.ENODEV, errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENOSYS)
"""Errors of file systems, such as some of FUSE's, that cannot map files into memory."""


def _map(path: Path, *types: type[np.generic]) -> NDArray[np.generic]:
    try:
        try:
            array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
        except OSError as error:
            if error.errno not in CANNOT_MAP:
                raise
            array = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read as an array ({error}); prepare the data again"
        ) from error
    if array.dtype.type not in types or array.ndim != 1:
        raise DataError(
            f"{path}: {array.dtype} numbers of shape {array.shape} are not what belongs there"
        )
    return array


@dataclass(frozen=True)
class EncodedPairs:
    """Some raw pairs, encoded."""

    split: EncodedSplit
    kept: list[tuple[bytes, bytes]]
    """The raw lines of `split`, without their line ends."""
    too_long: int
    """Pairs that were left out."""


def write_split(
    folder: Path,
    split: str,
    parts: Iterable[EncodedPairs],
    *,
    src_type: IdType,
    tgt_type: IdType,
) -> None:
    """Write `parts`, one after the other, as the files of `split`, with ids of these types.

    Of all pairs, only the lengths are held in memory.
    """
    with ExitStack() as stack:
        with write_errors_named(folder):
            src = stack.enter_context(_SideWriter(folder, split, "src", src_type))
            tgt = stack.enter_context(_SideWriter(folder, split, "tgt", tgt_type))
        for part in parts:
            with write_errors_named(folder):
                src.write(part.split.src, [src_line for src_line, _ in part.kept])
                tgt.write(part.split.tgt, [tgt_line for _, tgt_line in part.kept])
        with write_errors_named(folder):
            src.finish()
            tgt.finish()


class _SideWriter:
    """Writes the files of one side; closes them at the end of its block."""

    def __init__(self, folder: Path, split: str, side: Side, id_type: IdType) -> None:
        ids_path, self._offsets_path = _array_paths(folder, split, side)
        self._id_type = id_type
        self._lengths = [np.zeros(1, np.int64)]
        self._ids = ids_path.open("wb")
        self._lines = lines_path(folder, split, side).open("wb")
        _write_header(self._ids, id_type, length=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in (self._ids, self._lines):
            try:
                file.close()
            except OSError:
                if kind is None:  # otherwise, the error that came first is the one to report
                    raise

    def write(self, sentences: Sentences, lines: Sequence[bytes]) -> None:
        self._ids.write(sentences.ids.astype(self._id_type, copy=False).tobytes())
        self._lengths.append(sentences.lengths)
        self._lines.write(b"".join(line + b"\n" for line in lines))

    def finish(self) -> None:
        """Write what is known only now; errors are raised here rather than when files close."""
        offsets = np.cumsum(np.concatenate(self._lengths))
        np.save(self._offsets_path, offsets)
        self._ids.seek(0)
        _write_header(self._ids, self._id_type, length=int(offsets[-1]))
        self._ids.flush()
        self._lines.flush()


def _write_header(file: BinaryIO, kind: IdType, *, length: int) -> None:
    """Begin a .npy file. NumPy leaves room for the length to grow, so it can be written again."""
    descr = np.lib.format.dtype_to_descr(np.dtype(kind))
    header = {"descr": descr, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)
