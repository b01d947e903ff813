"""Batches: which pairs go together, in which shape, and how they become padded tensors.

Batches come in few shapes, because kernels are made for shapes (see `machine.ladder`).
Knows lengths and ids, never text. Letters: B batch, S source length, T target length, N real target tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.data.shuffle import MixedShuffle, Shuffle
from mt_cli.data.split import EncodedSplit
from mt_cli.machine.ladder import rung, rungs, rungs_below
from mt_cli.text.symbols import BOS_ID, EOS_ID, PAD_ID

POOL_BATCHES = 100
"""Pairs are sorted by length within pools of about so many batches, so that order stays random."""


@dataclass(frozen=True)
class Shape:
    """The size of a batch, padding included."""

    rows: int
    """B: pairs, and empty rows that fill up."""
    src_width: int
    """S: `</s>` counted."""
    tgt_width: int
    """T: `</s>` counted."""


@dataclass(frozen=True)
class PlannedBatch:
    """Pairs that go together, and the shape they are padded to."""

    indices: NDArray[np.int64]
    """At least one."""
    shape: Shape

    def share(self, rank: int, *, of: int) -> "PlannedBatch | None":
        """The part of process `rank` among `of` processes; None if there are too few pairs."""
        indices = self.indices[rank::of]
        if not len(indices):
            return None
        return PlannedBatch(indices, replace(self.shape, rows=-(-self.shape.rows // of)))


@dataclass(frozen=True)
class Batch:
    """Padded ids of some pairs, ready for teacher forcing."""

    src_ids: Tensor
    """(B, S), each row ends in `</s>`."""
    tgt_ids: Tensor
    """(B, T+1), each row between `<s>` and `</s>`."""
    real: Tensor
    """(N,): where real tokens stand in `tgt_out`, flattened; found on a CPU, for no GPU need be asked."""

    @classmethod
    def of(cls, src_ids: Tensor, tgt_ids: Tensor) -> "Batch":
        """The batch of `src_ids` (B, S) and `tgt_ids` (B, T+1)."""
        return cls(src_ids, tgt_ids, (tgt_ids[:, 1:] != PAD_ID).flatten().nonzero().squeeze(1))

    @property
    def tgt_in(self) -> Tensor:
        """What the decoder is given, (B, T): everything but the last position."""
        return self.tgt_ids[:, :-1]

    @property
    def tgt_out(self) -> Tensor:
        """What it has to predict there, (B, T): everything but the first."""
        return self.tgt_ids[:, 1:]

    def to(self, device: torch.device) -> "Batch":
        """The batch on `device`."""
        tensors = (self.src_ids, self.tgt_ids, self.real)
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in tensors))


def plan_epoch(
    split: EncodedSplit, *, tokens_per_batch: int, max_width: int, rng: np.random.Generator
) -> Iterator[PlannedBatch]:
    """Every pair once: alike in length within a batch, batches of a pool in random order.

    Of a split that has parts, every pair as often as its part's share says.
    A batch holds at most `tokens_per_batch` tokens a side, padding and `</s>` counted; a pair that is
    longer than that stands alone. Widths are rungs of the ladder, or `max_width`, which no pair
    exceeds. Memory does not grow with the corpus: one pool is planned at a time.
    """
    order = _shuffled(split, rng)
    mean_length = 1 + max(len(side.ids) for side in (split.src, split.tgt)) / max(1, len(split))
    pool_size = max(1, int(POOL_BATCHES * tokens_per_batch / mean_length))
    is_small = len(order) < pool_size
    for begin in range(0, len(order), pool_size):
        pool = order.slice(begin, begin + pool_size)
        src_widths, tgt_widths = (
            np.minimum(rungs(side.lengths_of(pool) + 1), max_width) for side in (split.src, split.tgt)
        )
        # The narrower side is one rung below the wider at the most: that halves the number of shapes.
        least = rungs_below(np.maximum(src_widths, tgt_widths))
        batches = list(
            _group(
                pool,
                np.maximum(src_widths, least),
                np.maximum(tgt_widths, least),
                tokens_per_batch=tokens_per_batch,
                is_small=is_small,
            )
        )
        for i in rng.permutation(len(batches)):
            yield batches[i]


def _shuffled(split: EncodedSplit, rng: np.random.Generator) -> Shuffle | MixedShuffle:
    if not split.parts:
        return Shuffle(len(split), rng)
    return MixedShuffle([part.size for part in split.parts], [part.share for part in split.parts], rng)


def _group(
    pool: NDArray[np.int64],
    src_widths: NDArray[np.int64],
    tgt_widths: NDArray[np.int64],
    *,
    tokens_per_batch: int,
    is_small: bool,
) -> Iterator[PlannedBatch]:
    """Batches of the pairs `pool` (N,), each as wide as its widest pair, with as many rows as that allows.

    So a batch's number of rows follows from its widths. Only in a small corpus, where a last batch of few
    pairs weighs much, such a batch has fewer.
    """
    wider = np.maximum(src_widths, tgt_widths)
    order = np.lexsort((src_widths, tgt_widths, wider))
    while len(order):
        most = _rows(wider[order[:1]], tokens_per_batch)[0]
        widest = [np.maximum.accumulate(widths[order[:most]]) for widths in (src_widths, tgt_widths)]
        rows = _rows(np.maximum(*widest), tokens_per_batch)  # of the first one, two, three …
        size = max(1, int(np.count_nonzero(np.arange(1, len(rows) + 1) <= rows)))
        num_rows = int(rows[size - 1])
        if is_small:
            num_rows = min(num_rows, rung(size))
        shape = Shape(num_rows, *(int(side[size - 1]) for side in widest))
        yield PlannedBatch(pool[order[:size]], shape)
        order = order[size:]


def _rows(widths: NDArray[np.int64], tokens_per_batch: int) -> NDArray[np.int64]:
    """How many rows of each of `widths` (N,) stay within the budget, at least one: (N,)."""
    return np.maximum(1, tokens_per_batch // widths)


def collate(
    split: EncodedSplit, indices: Sequence[int] | NDArray[np.int64], shape: Shape | None = None
) -> Batch:
    """The pairs at `indices`, padded to `shape`, or without one as far as the longest needs.

    Rows that are left over hold no target token.
    """
    src = [np.append(split.src[int(i)], EOS_ID) for i in indices]
    tgt = [np.concatenate(([BOS_ID], split.tgt[int(i)], [EOS_ID])) for i in indices]
    if shape is None:
        return Batch.of(pad_ids(src), pad_ids(tgt))
    empty_rows = shape.rows - len(indices)
    return Batch.of(
        # One source token: a row that may attend to nothing would give NaN.
        pad_ids([*src, *[[EOS_ID]] * empty_rows], width=shape.src_width),
        pad_ids([*tgt, *[[PAD_ID]] * empty_rows], width=shape.tgt_width + 1),
    )


def pad_ids(sequences: Sequence[Sequence[int] | NDArray[np.integer]], *, width: int | None = None) -> Tensor:
    """Rows of ids as one tensor (B, `width`, or as long as the longest), filled with `<pad>` on the right."""
    if width is None:
        width = max((len(sequence) for sequence in sequences), default=0)
    padded = np.full((len(sequences), width), PAD_ID, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded)
