"""Data-parallel training with several processes, started by torchrun.

Gradients are summed after the backward pass, in fp32, in one message with the losses. PyTorch's DDP
would send them during the backward pass, but it rearranges its buckets after the first update of a
session. Sums over more than two processes would then round differently, and a resumed training
would not be exact.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from mt_cli.errors import ResourceError, UsageError
from mt_cli.machine.process import must_leave_at_once

Result = TypeVar("Result")
Answer = TypeVar("Answer")
log = logging.getLogger(__name__)
VALIDATION_TIMEOUT = timedelta(hours=3)
"""How long the other processes wait while the first one validates and saves."""
ALL_REDUCE_TIMEOUT = timedelta(minutes=10)
"""How long a process on a GPU waits for the others during an update."""
RENDEZVOUS_TIMEOUT = timedelta(minutes=10)
"""How long all processes wait for the last one to start."""
NUMBERS = ("WORLD_SIZE", "RANK", "MASTER_PORT")
"""Numeric environment variables that torchrun sets, in addition to MASTER_ADDR."""


@dataclass(frozen=True)
class World:
    """The processes that train together; a single one without torchrun."""

    rank: int = 0
    size: int = 1
    tensor_group: "dist.ProcessGroup | None" = None
    """Process group for tensors; None uses the default group, which carries everything else."""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes, validates and decides."""
        return self.rank == 0

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor (of any shape) with its sum over all processes."""
        if self.size == 1:
            return
        # One message instead of hundreds.
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _missing_peers_explained():
            dist.all_reduce(flat, group=self.tensor_group)
        totals = torch.split(flat, [tensor.numel() for tensor in tensors])
        shaped = [total.view_as(tensor) for tensor, total in zip(tensors, totals, strict=True)]
        torch._foreach_copy_(list(tensors), shaped)

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor (of any shape) with that of the first process."""
        if self.size > 1:
            with _missing_peers_explained():
                for tensor in tensors:
                    dist.broadcast(tensor.detach(), 0, group=self.tensor_group)

    def after_first(
        self, by_first: Callable[[], Result], by_others: Callable[[], Result]
    ) -> Result:
        """Run `by_first()` in the first process and then `by_others()` in all others.

        Raises:
            ResourceError: in the others, because the first process failed.
        """
        results = []

        def first() -> None:
            results.append(by_first())

        if self.ask_first(first) is not None:
            raise ResourceError("the first process (rank 0) failed to start; see its error")
        return results[0] if self.is_first else by_others()

    def ask_first(self, question: Callable[[], Answer | None]) -> Answer | Literal[""] | None:
        """`question()` in the first process; the others get None if that is None, else ""."""
        answer: Answer | Literal[""] | None = ""
        if self.is_first:
            try:
                answer = question()
            except BaseException:
                self.announce_end()
                raise
        return None if self.broadcast_int(int(answer is None)) else answer

    def maximum(self, value: int) -> int:
        """The largest `value` in all processes; each waits for the others."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value)
        with _missing_peers_explained():
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return int(tensor)

    def announce_end(self) -> None:
        """Tell the other processes to end; ignore it if they have already ended."""
        with contextlib.suppress(ResourceError):
            self.broadcast_int(False)

    def broadcast_int(self, value: int) -> int:
        """`value` of the first process, in every process; the others wait for it."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value)
        with _missing_peers_explained():
            dist.broadcast(tensor, 0)
        return int(tensor)


@contextmanager
def joined_world() -> Iterator[World]:
    """Join the process group that torchrun started, if any.

    Raises:
        UsageError: WORLD_SIZE is set, but other variables of torchrun are missing.
        ResourceError: the other processes cannot be reached.
    """
    size = _world_size()
    if size == 1:
        yield World()
        return
    if os.environ.get("RANK") == "0":
        log.info("waiting for %d processes", size)
    with _missing_peers_explained():
        store, rank, _ = next(rendezvous("env://", timeout=RENDEZVOUS_TIMEOUT))
        # On a restart, torchrun keeps its store, with addresses that no longer exist.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=VALIDATION_TIMEOUT
        )
        tensor_group = None
        if torch.cuda.is_available() and dist.is_nccl_available():
            tensor_group = dist.new_group(backend="cpu:gloo,cuda:nccl", timeout=ALL_REDUCE_TIMEOUT)
    try:
        yield World(rank, size, tensor_group)
    except BaseException:
        # Destroying a NCCL group waits for all processes, which may be waiting for this one.
        if tensor_group is None:
            dist.destroy_process_group()
        else:
            must_leave_at_once.set()
        raise
    dist.destroy_process_group()


def _world_size() -> int:
    """Number of processes, from the environment that torchrun sets; 1 without torchrun."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return 1
    wrong = [name for name in NUMBERS if not os.environ.get(name, "").isdecimal()]
    if wrong:
        raise UsageError(
            f"WORLD_SIZE is {size!r}, but {', '.join(wrong)} is missing or wrong; start with "
            "torchrun, or unset WORLD_SIZE"
        )
    return int(size)


@contextmanager
def _missing_peers_explained() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:  # includes NCCL's errors
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ResourceError(
            f"the training processes cannot reach each other ({reason}); on GPUs, set "
            "NCCL_DEBUG=INFO for details and check the container's --shm-size; then continue with "
            "--resume"
        ) from error
