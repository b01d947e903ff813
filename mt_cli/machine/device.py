"""The machine: device, precision, threads and seeds.

Detects the hardware; knows nothing of models or data.
"""

import contextlib
import ctypes
import os
import platform
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import torch

from mt_cli.config import MOST_THREADS, Device, Precision, PrecisionChoice
from mt_cli.errors import Option, OutOfMemoryError, ResourceError
from mt_cli.machine.hardware import GIB, has_amx, has_avx512, is_fast_in_bf16, processor_name
from mt_cli.machine.memory_limit import memory_size, usable_memory
from mt_cli.machine.shortage import MEMORY, shortage

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
INT_MAX = 2**31 - 1
MMAP_THRESHOLDS = (1 << 30, 1 << 25)
"""The largest that glibc accepts: since 2.35, and before. It refuses larger ones."""
SPARE_THREADS = 2
"""Besides those that compute: of the backward pass and of a progress bar."""
PACKAGES = ("sentencepiece", "spacy", "torchtext", "sacrebleu", "numpy")
"""Packages besides torch whose version may affect a result."""


@dataclass(frozen=True)
class Runtime:
    """A device and the precision of its matrix products."""

    device: torch.device
    precision: Precision

    def without_gradients(self) -> contextlib.AbstractContextManager[object]:
        """A context in which nothing is kept for a backward pass."""
        # Inference mode is a little faster, but in it `autocast` would convert every matrix at every use.
        return torch.inference_mode() if self.precision == "fp32" else torch.no_grad()

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """A context in which matrix products run in this precision."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def set_up_runtime(
    *, device: Device = "auto", precision: PrecisionChoice = "auto", threads: int = 0
) -> Runtime:
    """Choose device and precision, and set the number of CPU threads (0: PyTorch's choice).

    fp32 is full fp32: TensorFloat-32 is off, whatever the environment says.

    Raises:
        ResourceError: there is no such device, or the system allows too few threads.
    """
    if threads > MOST_THREADS:  # torch takes no such number
        raise ResourceError(f"{threads} threads are more than any machine has; give ", Option("threads", 1))
    if threads:
        torch.set_num_threads(threads)
    _check_threads(torch.get_num_threads() + SPARE_THREADS)
    _keep_freed_memory()
    torch.set_float32_matmul_precision("highest")
    chosen = _choose_device(device)
    if chosen.type == "cuda":
        # cuDNN's attention makes a plan for each new shape, and sentences have many.
        torch.backends.cuda.enable_cudnn_sdp(False)
    if precision == "auto":
        precision = "bf16" if _is_fast_in_bf16(chosen) else "fp32"
    return Runtime(chosen, precision)


def seed_everything(seed: int) -> None:
    """Seed torch's generators that dropout draws from: the CPU's, and the GPU's where one is in use."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a hundred times as long
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)


def release_memory(device: torch.device) -> None:
    """Give back what PyTorch keeps for later of `device`'s memory, so that it can be had in other pieces."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory that this process may take on `device`; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return usable_memory()


def describe_machine(runtime: Runtime) -> dict[str, str | int | float]:
    """Facts about the machine that help to interpret a result."""
    facts: dict[str, str | int | float] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        **_versions(),
        "device": str(runtime.device),
        "precision": runtime.precision,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "processor": processor_name(),
        "avx512": has_avx512(),
        "amx": has_amx(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
    }
    memory = memory_size()
    if memory is not None:
        facts["memory_gib"] = round(memory / GIB, 1)
    if runtime.device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(runtime.device)
        facts["gpu_memory_gib"] = round((memory_of(runtime.device) or 0) / GIB, 1)
    return facts


def _versions() -> dict[str, str]:
    """Versions of those `PACKAGES` that are installed."""
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


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


def _choose_device(device: Device) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ResourceError("no CUDA device found; use ", Option("device", "cpu"), ", or auto")
    if device == "cpu" or not has_cuda:
        return torch.device("cpu")
    if "LOCAL_RANK" not in os.environ:
        return torch.device("cuda")
    local_rank, found = os.environ["LOCAL_RANK"], torch.cuda.device_count()  # torchrun starts one for each
    if not local_rank.isdecimal():
        raise ResourceError(
            f"LOCAL_RANK is {local_rank!r} in the environment and has to be a number; start with torchrun, "
            "or unset it"
        )
    own = int(local_rank)
    if found == 1 and os.environ.get("CUDA_VISIBLE_DEVICES"):  # the launcher shows each process one GPU
        own = 0
    if own >= found:
        raise ResourceError(f"no GPU is left for process {own + 1}: this machine has {found}; start no more")
    torch.cuda.set_device(own)
    return torch.device("cuda", own)


def _is_fast_in_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return is_fast_in_bf16()


def _check_threads(count: int) -> None:
    """Make sure that `count` threads can be started: OpenMP ends the process where it cannot start one."""
    end = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=end.wait)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise ResourceError(
            f"the system lets this process start {len(started)} more threads, and {count} are needed; give ",
            Option("threads", 1),
            ", or raise the limit (ulimit -u, ulimit -v)",
        ) from error
    finally:
        end.set()
        for thread in started:
            thread.join()


def _keep_freed_memory() -> None:
    """Have glibc reuse large blocks: giving them back costs a page fault per 4 KiB at every step."""
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    # A thread's own heap is limited to 64 MiB; larger blocks would be mapped anew each time. The setting has
    # no effect once many threads have allocated something.
    mallopt(M_ARENA_MAX, 1)
    if any(mallopt(M_MMAP_THRESHOLD, threshold) for threshold in MMAP_THRESHOLDS):  # until one is accepted
        # Set only with the other: alone, it would freeze the mmap threshold at 128 KiB, which is worse.
        mallopt(M_TRIM_THRESHOLD, INT_MAX)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one CPU thread: a single sentence is too little work to share among several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
