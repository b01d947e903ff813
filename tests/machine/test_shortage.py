"""What the machine ran out of, told by what libraries say."""

import errno

import pytest
import torch

from mt_cli.machine.shortage import HINTS, MEMORY, THREADS, shortage


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        (MemoryError(), MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), MEMORY),
        (RuntimeError("std::bad_alloc"), MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), MEMORY),
        (RuntimeError("could not create a primitive"), MEMORY),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), MEMORY),
        (RuntimeError("can't start new thread"), THREADS),
        (RuntimeError("Resource temporarily unavailable"), THREADS),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), THREADS),
        (RuntimeError("shapes differ"), None),
        (ValueError("out of memory"), None),
        (OSError(errno.ENOENT, "No such file or directory"), None),
    ],
    ids=str,
)
def test_shortage_is_known_by_what_is_said(error: Exception, lacking: str | None) -> None:
    assert shortage(error) == lacking
    assert lacking is None or lacking in HINTS
