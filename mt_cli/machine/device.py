"""The machine: device, precision, threads, seeds and memory, and what it ran out of."""

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from mt_cli.config.schema import MAX_THREADS, Device, GraphsChoice, Precision, PrecisionChoice
from mt_cli.errors import Option, ResourceError
from mt_cli.machine.limits import usable_cores

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
INT_MAX = 2**31 - 1
MMAP_THRESHOLDS = (1 << 30, 1 << 25)
"""The largest that glibc accepts: since 2.35, and before. It refuses larger ones."""
FIRST_MATRIX_UNITS = (7, 0)
"""Compute capability of the first GPUs with tensor cores, which multiply fp16."""
DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True)
class Runtime:
    """A device and the precision of its matrix products."""

    device: torch.device
    precision: Precision
    graphs: bool = False
    """Whether training replays its updates as CUDA graphs."""
    threads: int = 0
    """CPU threads while we compute inside a caller's process; 0 keeps the caller's number."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers that are multiplied."""
        return DTYPES[self.precision]

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Use `threads` CPU threads in the block, then restore the number from before."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def without_gradients(self) -> contextlib.AbstractContextManager[object]:
        """A context in which nothing is kept for a backward pass."""
        # Inference mode is a little faster, but in it `autocast` would convert every matrix at
        # every use.
        return torch.inference_mode() if self.precision == "fp32" else torch.no_grad()

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """A context in which matrix products run in this precision."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)


def set_up_process(*, threads: int = 0) -> None:
    """Make settings that hold for the whole process: for a program, not for a library call.

    CPU threads (0: PyTorch's choice), how memory is freed, and full fp32: TensorFloat-32 is off,
    whatever the environment says.

    Raises:
        ResourceError: too many threads.
    """
    if threads > MAX_THREADS:  # torch takes no such number
        raise ResourceError(
            f"{threads} threads are more than any machine has; give ", Option("threads", 1)
        )
    if threads:
        torch.set_num_threads(threads)
    elif "OMP_NUM_THREADS" not in os.environ and usable_cores() < torch.get_num_threads():
        torch.set_num_threads(usable_cores())  # PyTorch does not know of a container's quota
    _keep_freed_memory()
    torch.set_float32_matmul_precision("highest")
    # cuDNN's attention makes a plan for each new shape, and sentences have many.
    torch.backends.cuda.enable_cudnn_sdp(False)


def choose_runtime(
    *, device: Device = "auto", precision: PrecisionChoice = "auto", graphs: GraphsChoice = "off"
) -> Runtime:
    """The device, and what suits it.

    Raises:
        ResourceError: there is no such device.
    """
    chosen = _choose_device(device)
    suited = best_precision(chosen) if precision == "auto" else precision
    return Runtime(chosen, suited, graphs=graphs == "auto" and chosen.type == "cuda")


def best_precision(device: torch.device) -> Precision:
    """The fastest that training can use on `device`."""
    if device.type != "cuda":
        return "bf16" if device.type == "cpu" and fast_bf16() else "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "fp16" if torch.cuda.get_device_capability(device) >= FIRST_MATRIX_UNITS else "fp32"


def _choose_device(device: Device) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ResourceError("no CUDA device found; use ", Option("device", "cpu"), ", or auto")
    if device == "mps":  # only where asked for: nobody has tried it
        if not torch.backends.mps.is_available():
            raise ResourceError(
                "no GPU of an Apple computer found; use ", Option("device", "cpu"), ", or auto"
            )
        return torch.device("mps")
    if device == "cpu" or not has_cuda:
        return torch.device("cpu")
    local_rank = os.environ.get("LOCAL_RANK")  # torchrun starts a process for each GPU
    if local_rank is None:
        return torch.device("cuda")
    if not local_rank.isdecimal():
        raise ResourceError(
            f"LOCAL_RANK is {local_rank!r} in the environment and has to be a number; start with "
            "torchrun, or unset it"
        )
    own, found = int(local_rank), torch.cuda.device_count()
    if found == 1 and os.environ.get(
        "CUDA_VISIBLE_DEVICES"
    ):  # the launcher shows each process one GPU
        own = 0
    if own >= found:
        raise ResourceError(
            f"no GPU is left for process {own + 1}: this machine has {found}; start no more"
        )
    torch.cuda.set_device(own)
    return torch.device("cuda", own)


def _keep_freed_memory() -> None:
    """Have glibc reuse large blocks; returning them costs a page fault per 4 KiB at every step."""
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    if any(
        mallopt(M_MMAP_THRESHOLD, threshold) for threshold in MMAP_THRESHOLDS
    ):  # until one is accepted
        # Set only with the other: alone, it would freeze the mmap threshold at 128 KiB, which is
        # worse.
        mallopt(M_TRIM_THRESHOLD, INT_MAX)


def seed_dropout(seed: int) -> None:
    """Seed the generators that dropout draws from: the CPU's, and the GPU's if one is in use."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a hundred times as long
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)


# Which processor


def fast_bf16() -> str:
    """What oneDNN multiplies bf16 matrices with: `AMX`, `BF16` vectors, or nothing fast ("")."""
    most = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    is_unlimited = most in ("", "ALL", "DEFAULT")
    if torch.cpu._is_amx_tile_supported() and (is_unlimited or "AMX" in most):
        return "AMX"
    may_use = is_unlimited or any(name in most for name in ("BF16", "FP16", "AVX10", "AMX"))
    return "BF16" if torch.cpu._is_avx512_bf16_supported() and may_use else ""


# Memory
