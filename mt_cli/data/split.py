"""Encoded text: flat ids plus offsets, so that a corpus can stay on disk.

Knows ids, never files or text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

IdArray = NDArray[np.uint16] | NDArray[np.int32]
IdType = type[np.uint16] | type[np.int32]


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

    def slice(self, begin: int, end: int) -> "Sentences":
        """Sentences `begin` to `end` - 1."""
        offsets = self.offsets[begin : end + 1]
        return Sentences(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> IdArray:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def of(sentences: Sequence[Sequence[int]], *, vocab_size: int) -> "Sentences":
        """`sentences` in the smallest type that holds `vocab_size` ids."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum()))
        return Sentences(
            ids if id_type(vocab_size) is np.int32 else ids.astype(np.uint16),
            np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))),
        )


@dataclass(frozen=True)
class Portion:
    """Successive pairs of a split."""

    size: int
    share: float
    """How often an epoch sees each pair, on average; 1 is once."""


@dataclass(frozen=True)
class EncodedSplit:
    """Both sides of a split, line by line."""

    src: Sentences
    tgt: Sentences
    portions: tuple[Portion, ...] = ()
    """The portions that make up the split, in order; empty if it has only one."""

    def slice(self, begin: int, end: int) -> "EncodedSplit":
        """Pairs `begin` to `end` - 1."""
        return EncodedSplit(self.src.slice(begin, end), self.tgt.slice(begin, end))

    def __len__(self) -> int:
        return len(self.src)


def id_type(vocab_size: int) -> IdType:
    """The smallest type that holds ids below `vocab_size`."""
    return np.uint16 if vocab_size <= 1 << 16 else np.int32
