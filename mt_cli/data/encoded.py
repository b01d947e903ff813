"""Encoded splits: memory-mapped flat arrays of ids, with the offsets of sentences."""

import errno
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from mt_cli.config.schema import MAX_LENGTH, VAL, DecodingConfig, Side
from mt_cli.errors import DataError
from mt_cli.machine.files import damage_named

CANNOT_MAP = (errno.ENODEV, errno.EINVAL)
"""Errors of file systems that cannot memory-map files, such as network shares and FUSE."""
IDS_TOGETHER = 1 << 22
"""Number of ids to read at a time, so that a corpus need not fit into memory."""


IdArray = NDArray[np.uint16] | NDArray[np.int32]
IdType = type[np.uint16] | type[np.int32]


def id_type(vocab_size: int) -> IdType:
    """The smallest type that holds ids below `vocab_size`."""
    return np.uint16 if vocab_size <= 1 << 16 else np.int32


@dataclass(frozen=True)
class Sentences:
    """The sentences of one side, concatenated in one array of ids, or in several (shards)."""

    arrays: tuple[tuple[IdArray, NDArray[np.int64]], ...]
    """Ids and offsets: sentence i of an array is `ids[offsets[i]:offsets[i + 1]]`."""

    @staticmethod
    def of(sentences: Sequence[Sequence[int]]) -> "Sentences":
        """Concatenate `sentences`."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum()))
        return Sentences(((ids, np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))),))

    @functools.cached_property
    def _ends(self) -> NDArray[np.int64]:
        """The index after each array's last sentence, counted over all arrays."""
        return np.cumsum([len(offsets) - 1 for _, offsets in self.arrays], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> IdArray:
        ((_, _, ids),) = self.take(np.array([index]))
        return ids

    @property
    def num_ids(self) -> int:
        """Total number of ids."""
        return sum(int(offsets[-1] - offsets[0]) for _, offsets in self.arrays)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids in each sentence."""
        return np.concatenate([np.diff(offsets) for _, offsets in self.arrays])

    def lengths_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of ids in each sentence at `indices` (N,): (N,)."""
        lengths = np.empty(len(indices), np.int64)
        for rows, (_, offsets), places in self._by_array(indices):
            lengths[rows] = offsets[places + 1] - offsets[places]
        return lengths

    def take(
        self, indices: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], IdArray]]:
        """The sentences at `indices` (N,), array by array.

        Yields, for the R sentences of an array: their positions in `indices` (R,), their lengths
        (R,), and their concatenated ids. It does not loop over sentences, which would keep a GPU
        waiting.
        """
        for rows, (ids, offsets), places in self._by_array(indices):
            begins = offsets[places]
            lengths = offsets[places + 1] - begins
            ends = np.cumsum(lengths)
            yield (
                rows,
                lengths,
                ids[np.arange(ends[-1]) + np.repeat(begins - ends + lengths, lengths)],
            )

    def _by_array(
        self, indices: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], tuple[IdArray, NDArray[np.int64]], NDArray[np.int64]]]:
        """For each array with some of `indices` (N,): positions in `indices`, the array, indices.

        The last ones are the indices within the array.
        """
        numbers = np.searchsorted(self._ends, indices, side="right")
        order = np.argsort(numbers, kind="stable")
        changes = np.flatnonzero(np.diff(numbers[order])) + 1
        for rows in np.split(order, changes) if len(order) else ():
            number = numbers[rows[0]]
            _, offsets = self.arrays[number]
            yield rows, self.arrays[number], indices[rows] - (self._ends[number] - len(offsets) + 1)


@dataclass(frozen=True)
class EncodedSplit:
    """Both sides of a split, aligned."""

    src: Sentences
    tgt: Sentences
    portions: tuple[tuple[int, float], ...] = ()
    """For each part: number of pairs, and how often an epoch uses each of them on average."""

    def __len__(self) -> int:
        return len(self.src)

    def between(self, begin: int, end: int) -> "EncodedSplit":
        """The pairs `begin` to `end` - 1 of a split with one array per side, without copying."""

        def cut(side: Sentences) -> Sentences:
            ((ids, offsets),) = side.arrays
            return Sentences(((ids, offsets[begin : end + 1]),))

        return EncodedSplit(cut(self.src), cut(self.tgt))

    @staticmethod
    def joined(splits: Sequence["EncodedSplit"]) -> "EncodedSplit":
        """Concatenate the pairs of `splits`, without copying."""
        src = chain.from_iterable(split.src.arrays for split in splits)
        tgt = chain.from_iterable(split.tgt.arrays for split in splits)
        return EncodedSplit(Sentences(tuple(src)), Sentences(tuple(tgt)))


LENGTHS_SHARE = 0.999
"""Share of training pairs with at most `src_tokens` source tokens."""


FACTORS_SHARE = 0.99
"""Share of training pairs whose ratio of target to source length is covered before `MARGIN`."""
MARGIN = 1.5
"""How much longer a translation may be than these targets."""
MEASURED = 1 << 20
"""Maximum pairs to measure, in runs of `MEASURED_TOGETHER` evenly spread over the corpus."""
MEASURED_TOGETHER = 1 << 12
COMMON = 0.05
"""Share of training lines from which a number of sentences per line counts as common."""


class TrainingLengths(BaseModel):
    """Lengths of the training lines and of their translations."""

    model_config = ConfigDict(frozen=True, strict=True)

    src_tokens: int = MAX_LENGTH
    """Nearly all source lines have at most this many tokens."""
    sentences: int = MAX_LENGTH
    """The largest common number of sentences per source line."""
    max_len_factor: float = 1.5
    """Nearly all targets have at most this many times their source's tokens, plus a few."""
    tokens_per_word: float = 0.0
    """Mean tokens per source word in text like the training text, without `</s>`; 0 is unknown.
    Words that the tokenizer has never seen have more.
    """

    @staticmethod
    def of(
        split: EncodedSplit, num_sentences: Counter[int], *, tokens_per_word: float = 0.0
    ) -> "TrainingLengths":
        """Measure the pairs in `split`; `num_sentences` counts lines by number of sentences.

        At most about `MEASURED` pairs are measured.
        """
        if not len(split):
            return TrainingLengths()
        measured = np.arange(len(split))
        if len(split) > MEASURED:
            last = len(split) - MEASURED_TOGETHER
            begins = np.linspace(0, last, MEASURED // MEASURED_TOGETHER).astype(np.int64)
            measured = (begins[:, np.newaxis] + np.arange(MEASURED_TOGETHER)).ravel()
        src = split.src.lengths_of(measured)
        tgt = split.tgt.lengths_of(measured)
        factors = (tgt - DecodingConfig().max_len_extra) / np.maximum(src, 1)
        # "higher" gives the value of some line, never one between two.
        longest = np.quantile(src, LENGTHS_SHARE, method="higher")
        factor = MARGIN * np.quantile(factors, FACTORS_SHARE, method="higher")
        common = 1
        num_lines = 0
        for number in sorted(num_sentences, reverse=True):
            num_lines += num_sentences[number]
            if num_lines >= COMMON * num_sentences.total():
                common = max(1, number)
                break
        return TrainingLengths(
            src_tokens=int(longest),
            sentences=common,
            max_len_factor=max(TrainingLengths().max_len_factor, round(float(factor), 2)),
            tokens_per_word=tokens_per_word,
        )


def lines_path(folder: Path, split: str, side: Side) -> Path:
    """Path of the raw lines of a side."""
    return folder / f"{split}.{side}.txt"


def _array_paths(folder: Path, split: str, side: Side) -> tuple[Path, Path]:
    """Paths of the ids of a side and of their offsets."""
    return folder / f"{split}.{side}.npy", folder / f"{split}.{side}.offsets.npy"


def open_split(folder: Path, split: str) -> EncodedSplit:
    """Open the encoded pairs of `split`, memory-mapped.

    Raises:
        DataError: a file is missing, or is not such an array.
    """
    src = _open_side(*_array_paths(folder, split, "src"))
    tgt = _open_side(*_array_paths(folder, split, "tgt"))
    if len(src) != len(tgt):
        raise DataError(f"{folder}: {split} has {len(src):,} sources, but {len(tgt):,} targets")
    return EncodedSplit(src, tgt)


def _open_side(ids_path: Path, offsets_path: Path) -> Sentences:
    ids = cast("IdArray", _map(ids_path, np.uint16, np.int32))
    offsets = cast("NDArray[np.int64]", _map(offsets_path, np.int64))
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids):
        raise DataError(f"{offsets_path}: does not match {len(ids):,} ids; prepare again")
    return Sentences(((ids, offsets),))


def _map(path: Path, *types: type[np.generic]) -> NDArray[np.generic]:
    load = functools.partial(np.load, path, allow_pickle=False)
    with damage_named(path, "array of ids", ValueError, TypeError, OverflowError, EOFError):
        try:
            array: NDArray[np.generic] = load(mmap_mode="r")
        except OSError as error:
            if error.errno not in CANNOT_MAP:
                raise
            array = load()
    if array.dtype.type not in types or array.ndim != 1:
        raise DataError(f"{path}: unexpected {array.dtype} array of shape {array.shape}")
    return array


def tokens_per_word(folder: Path) -> float:
    """Mean number of source tokens per word (between spaces) of `val` in `folder`."""
    lines = lines_path(folder, VAL, "src").read_bytes()
    return round(open_split(folder, VAL).src.num_ids / max(1, len(lines.split())), 3)


def write_split(
    folder: Path,
    split: str,
    parts: Iterable[tuple[EncodedSplit, Sequence[tuple[bytes, bytes]]]],
    *,
    src_type: IdType,
    tgt_type: IdType,
) -> None:
    """Write `parts`, one after the other, as the files of `split`, with ids of these types.

    Each part has ids and raw lines without line ends. Only the lengths of all pairs are kept in
    memory.
    """
    with ExitStack() as files:
        src = _SideWriter(folder, split, "src", src_type, files)
        tgt = _SideWriter(folder, split, "tgt", tgt_type, files)
        for encoded, lines in parts:
            src.write(encoded.src, [src_line for src_line, _ in lines])
            tgt.write(encoded.tgt, [tgt_line for _, tgt_line in lines])
        src.finish()
        tgt.finish()


class _SideWriter:
    """Writes the files of one side."""

    def __init__(
        self, folder: Path, split: str, side: Side, id_type: IdType, files: ExitStack
    ) -> None:
        """Files that are opened here are closed by `files`."""
        ids_path, self._offsets_path = _array_paths(folder, split, side)
        self._id_type = id_type
        self._lengths = [np.zeros(1, np.int64)]
        self._ids = files.enter_context(ids_path.open("wb"))
        self._lines = files.enter_context(lines_path(folder, split, side).open("wb"))
        self._write_header(length=0)

    def write(self, sentences: Sentences, lines: Sequence[bytes]) -> None:
        for ids, _ in sentences.arrays:
            self._ids.write(ids.astype(self._id_type, copy=False).tobytes())
        self._lengths.append(sentences.lengths)
        self._lines.write(b"".join(line + b"\n" for line in lines))

    def finish(self) -> None:
        """Write the offsets, and the final length into the header."""
        offsets = np.cumsum(np.concatenate(self._lengths))
        np.save(self._offsets_path, offsets)
        self._ids.seek(0)
        self._write_header(length=int(offsets[-1]))

    def _write_header(self, *, length: int) -> None:
        """Write the header of a .npy file; NumPy leaves room to rewrite it with another length."""
        descr = np.lib.format.dtype_to_descr(np.dtype(self._id_type))
        header = {"descr": descr, "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(self._ids, header)
