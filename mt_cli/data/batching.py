"""Batches: which pairs go together, and how they become padded tensors.

Knows lengths and ids, never text. Letters: B batch, S source length, T target length, N
real target tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.data.encoded import EncodedSplit
from mt_cli.data.shuffle import MixedShuffle, Shuffle
from mt_cli.data.symbols import BOS_ID, EOS_ID, PAD_ID

POOL_BATCHES = 100
"""Pairs are sorted by length within pools of about so many batches, so that order stays random."""


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
    split: EncodedSplit, *, tokens_per_batch: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Every pair once, as index arrays: alike in length within a batch, batches of a pool in random order.

    Of a split that has parts, every pair as often as its part's share says.
    A batch holds at most `tokens_per_batch` tokens a side, padding and `</s>` counted; a pair that is
    longer than that stands alone. Memory does not grow with the corpus: one pool is planned at a time.
    """
    order = _shuffled(split, rng)
    mean_length = 1 + max(len(side.ids) for side in (split.src, split.tgt)) / max(1, len(split))
    pool_size = max(1, int(POOL_BATCHES * tokens_per_batch / mean_length))
    for begin in range(0, len(order), pool_size):
        pool = order.stretch(begin, begin + pool_size)
        src, tgt = split.src.lengths_of(pool), split.tgt.lengths_of(pool)
        # Up and down in turn, so that where a batch holds two target lengths its sources are alike too.
        by_length = np.lexsort((np.where(tgt % 2, -src, src), tgt))
        batches = group_by_budget(by_length, np.maximum(src, tgt) + 1, tokens_per_batch=tokens_per_batch)
        for i in rng.permutation(len(batches)):
            yield pool[batches[i]]


def _shuffled(split: EncodedSplit, rng: np.random.Generator) -> Shuffle | MixedShuffle:
    if not split.parts:
        return Shuffle(len(split), rng)
    return MixedShuffle([part.size for part in split.parts], [part.share for part in split.parts], rng)


def group_by_budget(
    order: NDArray[np.int64], widths: NDArray[np.int64], *, tokens_per_batch: int
) -> list[NDArray[np.int64]]:
    """Cut `order` into runs whose size times greatest width (of `widths`, by pair) stays in the budget."""
    groups: list[NDArray[np.int64]] = []
    while len(order):
        most = max(1, tokens_per_batch // int(widths[order[0]]))
        widest = np.maximum.accumulate(widths[order[:most]])  # of the first one, two, three …
        size = max(1, int(np.count_nonzero(widest * np.arange(1, len(widest) + 1) <= tokens_per_batch)))
        groups.append(order[:size])
        order = order[size:]
    return groups


def collate(split: EncodedSplit, indices: Sequence[int] | NDArray[np.int64]) -> Batch:
    """The pairs at `indices`, padded on the right."""
    src = pad_ids([np.append(split.src[int(i)], EOS_ID) for i in indices])
    tgt = pad_ids([np.concatenate(([BOS_ID], split.tgt[int(i)], [EOS_ID])) for i in indices])
    return Batch.of(src, tgt)


def pad_ids(sequences: Sequence[Sequence[int] | NDArray[np.integer]]) -> Tensor:
    """Rows of ids as one tensor (B, longest), filled with `<pad>` on the right."""
    width = max((len(sequence) for sequence in sequences), default=0)
    padded = np.full((len(sequences), width), PAD_ID, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded)
