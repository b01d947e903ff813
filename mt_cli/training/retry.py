"""An update that starts over in smaller parts where memory runs out."""

import logging
from collections.abc import Callable, Sequence

from torch import Tensor

from mt_cli.data.batching import Batch
from mt_cli.machine.shortage import MEMORY, shortage

log = logging.getLogger(__name__)

UpdateFunction = Callable[[Sequence[Batch], float | Tensor, float | Tensor], Tensor]
"""See `Trainer._update`: batches, learning rate, one over the number of target tokens."""


class SmallerParts:
    """Calls an update; where memory runs out, again with the batches cut into parts.

    The gradients of parts add up to that of the batch, as with `training.accumulation`. Batches of
    a shape that did not fit once are cut from then on.
    """

    def __init__(self, update: UpdateFunction, *, start_over: Callable[[], None]) -> None:
        """`start_over` clears what a failed `update` has left behind."""
        self._update = update
        self._start_over = start_over
        self._num_parts: dict[tuple[int, ...], int] = {}
        """Parts of a batch, by the shape of its source; 1 if absent."""

    def __call__(
        self, batches: Sequence[Batch], lr: float | Tensor, per_token: float | Tensor
    ) -> Tensor:
        """What the update returns."""
        while True:
            parts: list[Batch] = []
            for batch in batches:
                parts += batch.parts(self._parts_of(batch))
            try:
                return self._update(parts, lr, per_token)
            except (MemoryError, RuntimeError) as error:
                if shortage(error) != MEMORY or not self._cut_largest(batches):
                    raise
            self._start_over()

    def _parts_of(self, batch: Batch) -> int:
        return self._num_parts.get(batch.src_ids.shape, 1)

    def _cut_largest(self, batches: Sequence[Batch]) -> bool:
        """Double the parts of the batch whose parts are largest; False if each is one row."""
        largest = max(batches, key=lambda batch: batch.src_ids.numel() / self._parts_of(batch))
        num_rows = len(largest.src_ids)
        num_parts = self._parts_of(largest)
        if num_parts >= num_rows:
            return False
        if not self._num_parts:
            log.warning(
                "out of memory: batches that do not fit are trained in parts, which is slower; "
                "lower training.tokens_per_batch"
            )
        self._num_parts[largest.src_ids.shape] = min(2 * num_parts, num_rows)
        return True
