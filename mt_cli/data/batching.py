"""Batches: which pairs go together, in which order and shape, and as which padded tensors.

Batches come in few shapes, because kernels are built per shape: on a CPU, oneDNN builds one for
each shape of a bf16 product and keeps a thousand of them, at about a megabyte each. CUDA graphs
need few shapes too. Letters: B batch, S source length, T target length, M real target tokens, N
pairs.
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
"""Blocks of neighbouring pairs that are shuffled: 24 bytes each, for a moment."""
POOL_BLOCKS = 64
"""Blocks of which a pool has pairs, at least."""


@dataclass(frozen=True)
class BatchShape:
    """The size of a batch, padding included."""

    rows: int
    """B: pairs, plus empty rows that fill the batch."""
    src_width: int
    """S: source tokens, `</s>` included."""
    tgt_width: int
    """T: target tokens, `</s>` included."""


@dataclass(frozen=True)
class PlannedBatch:
    """Pairs that go together, and the shape they are padded to."""

    indices: NDArray[np.int64]
    shape: BatchShape

    def shard(self, rank: int, *, of: int) -> "PlannedBatch":
        """The shard of process `rank` among `of` processes; without a pair if there are too few."""
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
    """(M,): places of real tokens in `tgt_out`, flattened; found on the CPU, so as not to wait for
    a GPU.
    """
    targets: Tensor
    """(M,): the tokens at these places."""

    has_spare_targets: bool = False
    """Whether `tgt_places` and `targets` are padded; spare places lie past `tgt_out`."""

    @classmethod
    def of(cls, src_ids: Tensor, tgt_ids: Tensor) -> "Batch":
        """The batch of `src_ids` (B, S) and `tgt_ids` (B, T+1)."""
        tgt_out = tgt_ids[:, 1:].flatten()
        tgt_places = (tgt_out != PAD_ID).nonzero().squeeze(1)
        return cls(src_ids, tgt_ids, tgt_places, tgt_out[tgt_places])

    def with_targets_padded(self) -> "Batch":
        """Pad `tgt_places` and `targets` to a bucket size, so that few shapes occur."""
        missing = (0, bucket_size(len(self.tgt_places)) - len(self.tgt_places))
        tgt_places = F.pad(self.tgt_places, missing, value=self.tgt_out.numel())
        targets = F.pad(self.targets, missing)
        return replace(self, tgt_places=tgt_places, targets=targets, has_spare_targets=True)

    def select_targets(self, values: Tensor) -> Tensor:
        """The rows (…, M, D) of `values` (…, B·T, D) at `tgt_places`; zero at a spare one."""
        if self.has_spare_targets:
            values = F.pad(values, (0, 0, 0, 1))
        return values.index_select(-2, self.tgt_places)

    @property
    def tgt_in(self) -> Tensor:
        """What the decoder is given, (B, T): everything but the last position."""
        return self.tgt_ids[:, :-1]

    @property
    def tgt_out(self) -> Tensor:
        """What the decoder has to predict, (B, T): everything but the first position."""
        return self.tgt_ids[:, 1:]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All of them."""
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
    """`tensor` on `device`. A GPU copies it from pinned memory, so that the host does not wait."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def plan_epoch(
    split: EncodedSplit, *, tokens_per_batch: int, max_width: int, rng: np.random.Generator
) -> Iterator[PlannedBatch]:
    """Plan an epoch: batches of pairs of similar length, in random order within a pool.

    Pairs come as often as `_pools` says. A batch holds at most `tokens_per_batch` tokens a side,
    padding and `</s>` included; a longer pair is a batch of its own. Widths are bucket sizes, or
    `max_width`, which no pair may exceed. One pool is planned at a time.
    """
    num_ids = max(split.src.num_ids, split.tgt.num_ids)
    mean_length = 1 + num_ids / max(1, len(split))
    pool_size = max(1, int(POOL_BATCHES * tokens_per_batch / mean_length))
    is_small = epoch_size(split) < pool_size
    for pool in _pools(_portions(split), pool_size, rng):
        src_widths = bucket_sizes(split.src.lengths_of(pool) + 1)
        tgt_widths = bucket_sizes(split.tgt.lengths_of(pool) + 1)
        # The narrower side is at most one size below the wider one: that halves the number of
        # shapes.
        least = bucket_sizes_below(np.maximum(src_widths, tgt_widths))
        batches = list(
            _group(
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
    """Pairs of an epoch; one that comes twice counts twice."""
    return sum(_num_drawn(*portion) for portion in _portions(split))


def _portions(split: EncodedSplit) -> Sequence[tuple[int, float]]:
    return split.portions or [(len(split), 1.0)]


def _num_drawn(size: int, share: float) -> int:
    return max(min(size, 1), round(size * share))


def _pools(
    portions: Sequence[tuple[int, float]], pool_size: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """The pairs of consecutive `portions`, each (size, share), in a random order, pool by pool.

    Each pair comes as often as the share of its portion says. If that is not a whole number, some
    come once more than the rest. A portion that is not empty gives at least one.

    So that memory does not grow with the corpus, blocks of neighbours are shuffled, and then the
    pairs of a pool of many blocks. Up to `MAX_BLOCKS` pairs, each is a block of its own.
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


def _group(
    pool: NDArray[np.int64],
    src_widths: NDArray[np.int64],
    tgt_widths: NDArray[np.int64],
    *,
    tokens_per_batch: int,
    is_small: bool,
) -> Iterator[PlannedBatch]:
    """Batches of the pairs `pool` (N,), each as wide as its widest pair needs.

    A batch has as many rows as fit, so its widths decide its number of rows. The exception is a
    small corpus, where many empty rows would cost much: there a batch of few pairs has fewer rows.
    """
    wider = np.maximum(src_widths, tgt_widths)
    order = np.lexsort((src_widths, tgt_widths, wider))
    while len(order):
        most = _rows(wider[order[:1]], tokens_per_batch)[0]
        # Of the first 1, 2, 3 … pairs:
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
    """Rows of each of `widths` (N,) that fit into `tokens_per_batch`, at least one: (N,)."""
    return np.maximum(1, tokens_per_batch // widths)


def collate(
    split: EncodedSplit, indices: Sequence[int] | NDArray[np.int64], shape: BatchShape | None = None
) -> Batch:
    """The pairs at `indices`, padded to `shape`, or if it is None to the longest.

    Rows beyond the pairs hold no target token.
    """
    indices = np.asarray(indices, np.int64)
    if shape is None:
        src_width = int(split.src.lengths_of(indices).max()) + 1
        tgt_width = int(split.tgt.lengths_of(indices).max()) + 1
        shape = BatchShape(len(indices), src_width, tgt_width)
    src = _rows_of(split.src, indices, rows=shape.rows, width=shape.src_width, first=0)
    src[len(indices) :, 0] = EOS_ID  # a row that may attend to nothing would give NaN
    tgt = _rows_of(split.tgt, indices, rows=shape.rows, width=shape.tgt_width + 1, first=1)
    tgt[: len(indices), 0] = BOS_ID
    return Batch.of(torch.from_numpy(src), torch.from_numpy(tgt))


def _rows_of(
    sentences: Sentences, indices: NDArray[np.int64], *, rows: int, width: int, first: int
) -> NDArray[np.int64]:
    """The sentences at `indices` (N,) from column `first` on, each before `</s>`: (rows, width).

    The rest is filled with `<pad>`.
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
    """Rows of ids as one tensor (B, as long as the longest), filled with `<pad>` on the right."""
    width = max((len(sequence) for sequence in sequences), default=0)
    padded = np.full((len(sequences), width), PAD_ID, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded)


def bucket_sizes(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each of `sizes` (N,), from 1, rounded up to a bucket size: (N,).

    There are four to each doubling: 1, 2 … 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 …
    """
    step = _step_to(sizes)
    return -(-sizes // step) * step


def bucket_size(size: int) -> int:
    """`size`, from 1, rounded up to a bucket size."""
    return int(bucket_sizes(np.array([size]))[0])


def bucket_sizes_below(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket size below each of the bucket sizes `sizes` (N,); below the first, 0: (N,)."""
    return sizes - _step_to(sizes)


def _step_to(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distances (N,) from the bucket size at or above each of `sizes` (N,) to the one below it."""
    digits = np.frexp(sizes - 1)[1]  # binary digits
    step: NDArray[np.int64] = np.left_shift(np.int64(1), np.maximum(digits - 3, 0))
    return step
