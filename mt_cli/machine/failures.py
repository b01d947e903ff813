"""Interpreting system errors: clear reasons, lack of memory or threads, GPU failures."""

import errno
import re

REASONS = {
    errno.ENOSPC: "no space left on the disk; free some",
    errno.EDQUOT: "disk quota exceeded; free some space",
    errno.EEXIST: "a file is in the way of a folder",
    errno.ENOTDIR: "a file is in the way of a folder",
    errno.ENOSYS: "the system has no /dev/shm, which several processes need; use --workers 1",
}
"""Replacements for misleading messages of the system."""


def reason_of(error: OSError) -> str:
    """The reason of an OSError, in plain words."""
    return REASONS.get(error.errno or 0, error.strerror or str(error))


MEMORY = "out of memory"
THREADS = "the system does not allow this process more threads"
SHORTAGE_HINTS = {
    MEMORY: "use smaller batches (--batch-size, training.tokens_per_batch) or a smaller model",
    THREADS: "use fewer (OMP_NUM_THREADS=1), or raise the limit (ulimit -u, ulimit -v)",
}
WORDS = {
    "can't allocate memory": MEMORY,
    "cannot allocate memory": MEMORY,
    "unable to allocate": MEMORY,
    "bad_alloc": MEMORY,
    "could not create a primitive": MEMORY,  # oneDNN
    "cublas_status_alloc_failed": MEMORY,
    "cublas_status_not_initialized": MEMORY,  # the first matrix product on a full GPU
    "failed to map segment from shared object": MEMORY,
    "out of memory": MEMORY,
    "can't start new thread": THREADS,
    "resource temporarily unavailable": THREADS,
}
"""Parts of libraries' messages, in lower case, and their meaning."""


def shortage(error: BaseException) -> str | None:
    """`MEMORY` or `THREADS` if `error` says that the machine lacks it; None for other errors."""
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, OSError):
        return {errno.ENOMEM: MEMORY, errno.EAGAIN: THREADS}.get(error.errno or 0)
    if not isinstance(error, RuntimeError | ImportError | SystemError):
        return None
    said = str(error).lower()
    return next((meaning for words, meaning in WORDS.items() if words in said), None)


GPU_FAILURE = re.compile(
    "(CUDA|HIP|cuDNN|cuBLAS|NCCL)( [a-z]+)* (error|failed)"
    "|No (CUDA|HIP) GPUs|Found no NVIDIA driver|Unexpected error from cuda"
)


def gpu_failure(error: BaseException) -> str | None:
    """The message of a GPU or driver failure in one line; None for other errors."""
    said = str(error).strip()
    if not isinstance(error, RuntimeError) or not GPU_FAILURE.match(said):
        return None
    return said.splitlines()[0].rstrip(".")
