"""`Halving`: work on batches, done in halves wherever memory runs out.

Knows batches of anything, not what is computed.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from mt_cli.errors import Option, OutOfMemoryError
from mt_cli.machine.device import memory_errors_explained, release_memory

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Found = TypeVar("Found")


class Halving:
    """Does work on whole batches while they fit, and warns once where they do not."""

    def __init__(self, device: torch.device, *, if_single: Sequence[str | Option]) -> None:
        """`if_single` is what to tell if a batch of one does not fit."""
        self._device = device
        self._if_single = if_single
        self._has_warned = False

    def map(self, work: Callable[[list[Item]], list[Found]], batch: list[Item]) -> list[Found]:
        """What `work` finds for each item of `batch`, in order.

        Raises:
            OutOfMemoryError: a single item does not fit.
        """
        is_single = len(batch) == 1
        hint = self._if_single if is_single else ("lower ", Option("batch_size"), f" (now {len(batch)})")
        try:
            with memory_errors_explained(*hint):
                return work(batch)
        except OutOfMemoryError as error:
            if is_single:
                raise
            self._warn(error)
        release_memory(self._device)
        half = len(batch) // 2
        return [*self.map(work, batch[:half]), *self.map(work, batch[half:])]

    def _warn(self, error: OutOfMemoryError) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s; batches that do not fit are divided in halves, which is slower", error.with_flags()
            )
