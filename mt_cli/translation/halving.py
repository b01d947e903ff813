"""`Halving`: batches get smaller where memory runs out."""

import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TypeVar

import torch

from mt_cli.errors import Option, OutOfMemoryError
from mt_cli.machine.memory import memory_errors_explained, release_memory

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Found = TypeVar("Found")
UNLIMITED = 1 << 62


class Halving:
    """Does work on whole batches while they fit; remembers, and warns once, where they do not."""

    def __init__(self, device: torch.device, *, if_single: Sequence[str | Option]) -> None:
        """`if_single` is what to tell if a batch of one does not fit."""
        self._device = device
        self._if_single = if_single
        self._lock = Lock()  # several threads search
        self._most_tokens = UNLIMITED
        """Half of the least that did not fit: items times the length of the longest."""

    def map(
        self, work: Callable[[list[Item]], list[Found]], batch: list[Item], *, longest: int = 1
    ) -> list[Found]:
        """What `work` finds for each item of `batch`, in order; the `longest` has so many tokens.

        Raises:
            OutOfMemoryError: a single item does not fit.
        """
        found: list[Found] = []
        while len(found) < len(batch):
            most = max(1, self._most_tokens // longest)
            part = batch[len(found) : len(found) + most]
            hint = self._if_single
            if len(part) > 1:
                hint = ["lower ", Option("batch_size"), f" (now {len(part)})"]
            try:
                with memory_errors_explained(*hint):
                    found += work(part)
                continue
            except OutOfMemoryError as error:
                if len(part) == 1:
                    raise
                with self._lock:
                    is_first = self._most_tokens == UNLIMITED
                    self._most_tokens = min(self._most_tokens, len(part) * longest // 2)
                if is_first:
                    log.warning("%s; smaller batches are slower", error.with_flags())
            release_memory(self._device)  # here, because an exception holds what its calls held
        return found
