"""Batching: group pairs by length, order the batches, and collate them into padded tensors.

There are only a few batch shapes, because kernels are built per shape: on a CPU, oneDNN builds one
for each shape of a bf16 product and caches a thousand of them, at about a megabyte each. CUDA
graphs need few shapes, too. Letters: B batch, S source length, T target length, M real target
tokens, N pairs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mt_cli.data.encoded import EncodedSplit, Sentences
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

POOL_BATCHES = 100
"""Pairs are sorted by length only within pools of about this many batches, so the order stays
random.
"""
MAX_BLOCKS = 1 << 22
"""Maximum number of blocks of neighbouring pairs to shuffle; takes 24 bytes each for a moment."""
POOL_BLOCKS = 64
"""Minimum number of blocks in a pool."""


@dataclass(frozen=True)
class BatchShape:
    """The size of a batch, including padding."""

    rows: int
    """B: pairs, plus empty rows that fill the batch."""
    src_width: int
    """S: source tokens, including `</s>`."""
    tgt_width: int
    """T: target tokens, including `</s>`."""


@dataclass(frozen=True)
class PlannedBatch:
    """The pairs of a batch, and the shape they are padded to."""

    indices: NDArray[np.int64]
    shape: BatchShape

    def shard(self, rank: int, *, of: int) -> "PlannedBatch":
        """The shard of process `rank` among `of` processes; empty if there are too few pairs."""
        return PlannedBatch(
            self.indices[rank::of], replace(self.shape, rows=-(-self.shape.rows // of))
        )


@dataclass(frozen=True)
class Batch:
    """Padded ids of some pairs, ready for teacher forcing."""

    src_ids: Tensor
    """(B, S), each row ends in `</s>`."""
    tgt_ids: Tensor
    """(B, T+1), each row between `<s>` and `</s>`."""
    tgt_places: Tensor
    """(M,): indices of real tokens in the flattened `tgt_out`; computed on the CPU to avoid waiting
    for a GPU.
    """
    targets: Tensor
    """(M,): the tokens at these indices."""

    has_spare_targets: bool = False
    """Whether `tgt_places` and `targets` are padded; padding indices lie past `tgt_out`."""

    @classmethod
    def of(cls, src_ids: Tensor, tgt_ids: Tensor) -> "Batch":
        """Make a batch from `src_ids` (B, S) and `tgt_ids` (B, T+1)."""
        tgt_out = tgt_ids[:, 1:].flatten()
        tgt_places = (tgt_out != PAD_ID).nonzero().squeeze(1)
        return cls(src_ids, tgt_ids, tgt_places, tgt_out[tgt_places])

    def with_targets_padded(self) -> "Batch":
        """Pad `tgt_places` and `targets` to a bucket size, for fewer shapes."""
        missing = (0, bucket_size(len(self.tgt_places)) - len(self.tgt_places))
        tgt_places = F.pad(self.tgt_places, missing, value=self.tgt_out.numel())
        targets = F.pad(self.targets, missing)
        return replace(self, tgt_places=tgt_places, targets=targets, has_spare_targets=True)

    def select_targets(self, values: Tensor) -> Tensor:
        """The rows (…, M, D) of `values` (…, B·T, D) at `tgt_places`; zeros for padding."""
        if self.has_spare_targets:
            values = F.pad(values, (0, 0, 0, 1))
        return values.index_select(-2, self.tgt_places)

    @property
    def tgt_in(self) -> Tensor:
        """The decoder's input, (B, T): all positions but the last."""
        return self.tgt_ids[:, :-1]

    @property
    def tgt_out(self) -> Tensor:
        """The decoder's targets, (B, T): all positions but the first."""
        return self.tgt_ids[:, 1:]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All tensors of the batch."""
        return self.src_ids, self.tgt_ids, self.tgt_places, self.targets

    def to(self, device: torch.device) -> "Batch":
        """The batch on `device`, in one copy."""
        if device == self.src_ids.device:
            return self
        sizes = [tensor.numel() for tensor in self.tensors]
        flat = to_device(torch.cat([tensor.flatten() for tensor in self.tensors]), device)
        src_ids, tgt_ids, tgt_places, targets = torch.split(flat, sizes)
        src_ids = src_ids.view(self.src_ids.shape)
        tgt_ids = tgt_ids.view(self.tgt_ids.shape)
        return replace(
            self, src_ids=src_ids, tgt_ids=tgt_ids, tgt_places=tgt_places, targets=targets
        )


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`; a GPU copies it from pinned memory, so that the host does not wait."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def plan_epoch(
    split: EncodedSplit, *, tokens_per_batch: int, max_width: int, rng: np.random.Generator
) -> Iterator[PlannedBatch]:
    """Plan an epoch: batches of pairs of similar length, in random order within a pool.

    `_pools` decides how often a pair occurs. A batch has at most `tokens_per_batch` tokens per
    side, including padding and `</s>`; a longer pair is a batch by itself. Widths are bucket sizes,
    or `max_width`, which no pair may exceed. One pool is planned at a time.
    """
    num_ids = max(split.src.num_ids, split.tgt.num_ids)
    mean_length = 1 + num_ids / max(1, len(split))
    pool_size = max(1, int(POOL_BATCHES * tokens_per_batch / mean_length))
    is_small = epoch_size(split) < pool_size
    for pool in _pools(_portions(split), pool_size, rng):
        src_widths = bucket_sizes(split.src.lengths_of(pool) + 1)
        tgt_widths = bucket_sizes(split.tgt.lengths_of(pool) + 1)
        # The narrower side is at most one bucket below the wider one, which halves the number of
        # shapes.
        least = bucket_sizes_below(np.maximum(src_widths, tgt_widths))
        batches = list(
            _group_by_length(
                pool,
                np.minimum(np.maximum(src_widths, least), max_width),
                np.minimum(np.maximum(tgt_widths, least), max_width),
                tokens_per_batch=tokens_per_batch,
                is_small=is_small,
            )
        )
        for i in rng.permutation(len(batches)):
            yield batches[i]


def epoch_size(split: EncodedSplit) -> int:
    """Number of pairs in an epoch; a pair that occurs twice counts twice."""
    return sum(_num_drawn(*portion) for portion in _portions(split))


def _portions(split: EncodedSplit) -> Sequence[tuple[int, float]]:
    return split.portions or [(len(split), 1.0)]


def _num_drawn(size: int, share: float) -> int:
    return max(min(size, 1), round(size * share))


def _pools(
    portions: Sequence[tuple[int, float]], pool_size: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """The pairs of consecutive `portions`, each (size, share), in random order, pool by pool.

    On average, a pair occurs as often as the share of its portion; with a fractional share, some
    pairs occur once more than others. A portion that is not empty gives at least one pair.

    To keep memory independent of the corpus size, blocks of neighbouring pairs are shuffled, and
    then the pairs within a pool of many blocks. Up to `MAX_BLOCKS` pairs, each pair is a block.
    """
    sizes = np.array([size for size, _ in portions])
    block_size = 1
    while sizes.sum() > MAX_BLOCKS * block_size:
        block_size *= 2
    num_blocks = -(-sizes // block_size)
    ends = np.cumsum(sizes)
    block_ends = np.cumsum(num_blocks)
    drawn = []
    for number, end, (_, share) in zip(num_blocks, block_ends, portions, strict=True):
        drawn.append(end - number + np.resize(rng.permutation(number), _num_drawn(number, share)))
    order = rng.permutation(np.concatenate(drawn))
    pool_blocks = pool_size if block_size == 1 else max(POOL_BLOCKS, pool_size // block_size)
    for begin in range(0, len(order), pool_blocks):
        blocks = order[begin : begin + pool_blocks]
        portion = np.searchsorted(block_ends, blocks, side="right")  # of each block
        firsts = ends[portion] - sizes[portion]
        firsts += (blocks - (block_ends - num_blocks)[portion]) * block_size
        pairs = firsts[:, np.newaxis] + np.arange(block_size)
        pool = pairs[pairs < ends[portion, np.newaxis]]
        yield pool if block_size == 1 else rng.permutation(pool)


def _group_by_length(
    pool: NDArray[np.int64],
    src_widths: NDArray[np.int64],
    tgt_widths: NDArray[np.int64],
    *,
    tokens_per_batch: int,
    is_small: bool,
) -> Iterator[PlannedBatch]:
    """Batches of the pairs `pool` (N,), each as wide as its widest pair needs.

    A batch has as many rows as fit, so its widths determine its number of rows. Only in a small
    corpus, where many empty rows would be costly, does a batch of few pairs have fewer rows.
    """
    wider = np.maximum(src_widths, tgt_widths)
    order = np.lexsort((src_widths, tgt_widths, wider))
    while len(order):
        most = _rows(wider[order[:1]], tokens_per_batch)[0]
        # Maxima over the first 1, 2, 3 … pairs:
        src_widest = np.maximum.accumulate(src_widths[order[:most]])
        tgt_widest = np.maximum.accumulate(tgt_widths[order[:most]])
        rows = _rows(np.maximum(src_widest, tgt_widest), tokens_per_batch)
        size = max(1, int(np.count_nonzero(np.arange(1, len(rows) + 1) <= rows)))
        num_rows = int(rows[size - 1])
        if is_small:
            num_rows = min(num_rows, bucket_size(size))
        shape = BatchShape(num_rows, int(src_widest[size - 1]), int(tgt_widest[size - 1]))
        yield PlannedBatch(pool[order[:size]], shape)
        order = order[size:]


def _rows(widths: NDArray[np.int64], tokens_per_batch: int) -> NDArray[np.int64]:
    """Number of rows (N,) of `widths` (N,) that fit into `tokens_per_batch`, at least one."""
    return np.maximum(1, tokens_per_batch // widths)


def collate(
    split: EncodedSplit, indices: Sequence[int] | NDArray[np.int64], shape: BatchShape | None = None
) -> Batch:
    """Collate the pairs at `indices`, padded to `shape`, or to the longest if it is None.

    Rows beyond the pairs have no target tokens.
    """
    indices = np.asarray(indices, np.int64)
    if shape is None:
        src_width = int(split.src.lengths_of(indices).max()) + 1
        tgt_width = int(split.tgt.lengths_of(indices).max()) + 1
        shape = BatchShape(len(indices), src_width, tgt_width)
    src = _rows_of(split.src, indices, rows=shape.rows, width=shape.src_width, first=0)
    src[len(indices) :, 0] = EOS_ID  # a row without any position to attend to would give NaN
    tgt = _rows_of(split.tgt, indices, rows=shape.rows, width=shape.tgt_width + 1, first=1)
    tgt[: len(indices), 0] = BOS_ID
    return Batch.of(torch.from_numpy(src), torch.from_numpy(tgt))


def _rows_of(
    sentences: Sentences, indices: NDArray[np.int64], *, rows: int, width: int, first: int
) -> NDArray[np.int64]:
    """The sentences at `indices` (N,), each starting at column `first` and followed by `</s>`.

    The result is (rows, width), padded with `<pad>`.
    """
    padded = np.full((rows, width), PAD_ID, dtype=np.int64)
    columns = np.arange(width) - first
    for places, lengths, ids in sentences.take(indices):
        block = np.full((len(places), width), PAD_ID, dtype=np.int64)
        block[(columns >= 0) & (columns < lengths[:, np.newaxis])] = ids
        block[np.arange(len(places)), first + lengths] = EOS_ID
        padded[places] = block
    return padded


def pad_ids(sequences: Sequence[Sequence[int] | NDArray[np.integer]]) -> Tensor:
    """Ids as a tensor (B, longest length), padded on the right with `<pad>`."""
    width = max((len(sequence) for sequence in sequences), default=0)
    padded = np.full((len(sequences), width), PAD_ID, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded)


def bucket_sizes(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round each of `sizes` (N,), from 1, up to a bucket size: (N,).

    There are four buckets per doubling: 1, 2 … 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 …
    """
    step = _step_to(sizes)
    return -(-sizes // step) * step


def bucket_size(size: int) -> int:
    """Round `size`, from 1, up to a bucket size."""
    return int(bucket_sizes(np.array([size]))[0])


def bucket_sizes_below(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The next smaller bucket size for each of the bucket sizes `sizes` (N,), or 0: (N,)."""
    return sizes - _step_to(sizes)


def _step_to(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distances (N,) between the bucket sizes above (or at) and below each of `sizes` (N,)."""
    digits = np.frexp(sizes - 1)[1]  # binary digits
    step: NDArray[np.int64] = np.left_shift(np.int64(1), np.maximum(digits - 3, 0))
    return step
