"""Batches that memory has no room for, in parts: their gradients add up to that of the whole.

Knows planned batches, nothing of what is computed with them.
"""

import logging
from collections.abc import Iterator

from mt_cli.data.batching import PlannedBatch, Shape

log = logging.getLogger(__name__)


class Parts:
    """Into how many parts batches of a shape are divided: one, until memory has run out."""

    def __init__(self) -> None:
        self._counts: dict[Shape, int] = {}

    def of(self, batch: PlannedBatch) -> Iterator[PlannedBatch]:
        """The parts of `batch`, which hold each of its pairs once."""
        count = self._counts.get(batch.shape, 1)
        for number in range(count):
            part = batch.share(number, of=count)
            if part is not None:
                yield part

    def divide(self, batch: PlannedBatch) -> bool:
        """Divide batches of the shape of `batch` into twice as many parts; False if they are single pairs."""
        count = self._counts.get(batch.shape, 1)
        if count >= len(batch.indices):
            return False
        if not self._counts:
            log.warning(
                "out of memory: batches that do not fit are trained in parts, which is slower; "
                "lower training.tokens_per_batch"
            )
        self._counts[batch.shape] = min(2 * count, len(batch.indices))
        return True
