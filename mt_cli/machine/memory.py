"""Memory of the machine and of its GPU: how much there is, and what happens when it runs out."""

import contextlib
from collections.abc import Iterator

import torch

from mt_cli.errors import Option, OutOfMemoryError, ResourceError
from mt_cli.machine.limits import free_memory, total_memory
from mt_cli.machine.shortage import MEMORY, shortage

GIB = 1 << 30


NUMBER_BYTES = 4


NUMBERS_IN_TRAINING = 4
"""For each parameter: the weight, its gradient and Adam's two means."""


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory of `device`; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return total_memory()


def free_memory_of(device: torch.device) -> int | None:
    """Bytes of memory of `device` that can still be had; None where the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + kept)
    return free_memory()


def check_fits_memory(
    num_parameters: int,
    *,
    device: torch.device | None = None,
    is_trained: bool = False,
) -> None:
    """Check that `device` can hold so many parameters, or train them if `is_trained`.

    Batches come on top: how much they take shows when the first is computed.

    Raises:
        ResourceError: they do not fit.
    """
    device = device or torch.device("cpu")
    # A machine can take memory back from its file cache, a GPU from nobody.
    memory = free_memory_of(device) if device.type == "cuda" else memory_of(device)
    needed = num_parameters * NUMBER_BYTES * (NUMBERS_IN_TRAINING if is_trained else 1)
    if memory is not None and needed > memory:
        verb = "and their training take" if is_trained else "take"
        raise ResourceError(
            f"the model does not fit: {num_parameters:,} parameters {verb} {needed / GIB:,.1f} "
            f"GiB, and there are {memory / GIB:,.1f} GiB; lower model.d_model, model.d_ff or the "
            "number of layers"
        )


def release_memory(device: torch.device) -> None:
    """Empty PyTorch's cache of `device`'s memory, so that it can be divided anew."""
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()


@contextlib.contextmanager
def memory_errors_explained(*hint: str | Option) -> Iterator[None]:
    """Turn an out-of-memory failure into an `OutOfMemoryError` that ends in the parts of `hint`."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError("out of GPU memory; ", *hint) from error
    except (MemoryError, RuntimeError) as error:
        if shortage(error) != MEMORY:
            raise
        raise OutOfMemoryError("out of memory; ", *hint) from error
