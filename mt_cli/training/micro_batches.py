"""Micro-batches: batches that memory has no room for, in parts whose gradients add up to that of the whole.

Knows planned batches, nothing of what is computed with them.
"""

import logging
from collections.abc import Iterator

from mt_cli.data.batching import BatchShape, PlannedBatch

log = logging.getLogger(__name__)


class MicroBatches:
    """Into how many micro-batches the batches of a shape are divided: one, until memory has run out."""

    def __init__(self) -> None:
        self._counts: dict[BatchShape, int] = {}

    def of(self, batch: PlannedBatch) -> Iterator[PlannedBatch]:
        """The micro-batches of `batch`, which hold each of its pairs once."""
        count = self._counts.get(batch.shape, 1)
        for number in range(count):
            micro_batch = batch.shard(number, of=count)
            if micro_batch is not None:
                yield micro_batch

    def divide(self, batch: PlannedBatch) -> bool:
        """Cut batches of this shape into twice as many micro-batches; False if each has one row already."""
        count = self._counts.get(batch.shape, 1)
        if count >= batch.shape.rows:
            return False
        if not self._counts:
            log.warning(
                "out of memory: batches that do not fit are trained in parts, which is slower; "
                "lower training.tokens_per_batch"
            )
        self._counts[batch.shape] = min(2 * count, batch.shape.rows)
        return True
