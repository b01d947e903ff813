"""The machine: device, precision, threads and seeds."""

import contextlib
import ctypes
import logging
import os
import platform
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from mt_cli.config.schema import MAX_THREADS, Device, GraphsChoice, Precision, PrecisionChoice
from mt_cli.errors import Option, ResourceError
from mt_cli.machine.process import usable_cores

log = logging.getLogger(__name__)

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
INT_MAX = 2**31 - 1
MMAP_THRESHOLDS = (1 << 30, 1 << 25)
"""The largest that glibc accepts: since 2.35, and before. It refuses larger ones."""
IMPORTED_BY = os.getpid()
NO_CUDA = "no CUDA device found"
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

    @contextlib.contextmanager
    def inference(self) -> Iterator[None]:
        """Compute in this precision in the block, and keep nothing for a backward pass."""
        # Inference mode is a little faster, but in it `autocast` would convert every matrix at
        # every use.
        no_gradients = torch.inference_mode() if self.precision == "fp32" else torch.no_grad()
        with no_gradients, self.autocast(), self.attention():
            yield

    def attention(self) -> contextlib.AbstractContextManager[object]:
        """A context in which a GPU's attention runs in kernels that take any shape at once."""
        if self.device.type == "cpu":
            return contextlib.nullcontext()
        # Not cuDNN's: it makes a plan for each new shape, and sentences have many.
        return sdpa_kernel(
            [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        )

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


def survive_fork() -> None:
    """Let a forked process compute in one thread: PyTorch would wait for its parent's for ever."""
    if os.getpid() != IMPORTED_BY:
        torch.set_num_threads(1)


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
    if device == "cpu":
        return torch.device("cpu")
    if device == "mps":  # only where asked for: nobody has tried it
        if not torch.backends.mps.is_available():
            raise ResourceError(
                "no GPU of an Apple computer found; use ", Option("device", "cpu"), ", or auto"
            )
        return torch.device("mps")
    refusal = cuda_refusal()
    if refusal is not None and device == "cuda":
        raise ResourceError(f"{refusal}; use ", Option("device", "cpu"), ", or auto")
    if refusal is not None:
        if not refusal.startswith(NO_CUDA):
            log.warning("%s; computing on the CPU", refusal)
        return torch.device("cpu")
    chosen = _own_cuda_device()
    check_has_kernels(chosen)
    return chosen


def cuda_refusal() -> str | None:
    """Why PyTorch finds no CUDA device; None if it finds one.

    It gives a reason once in a process: the first time it is asked.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            return None
    if caught:
        reason = str(caught[0].message).partition(" (Triggered internally")[0]
        reason = re.split(r"\.(\s+(?=[A-Z])|$)", reason.removeprefix("CUDA initialization: "))[0]
        return f"this PyTorch, {torch.__version__}, finds no GPU that it can use: {reason}"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"{NO_CUDA}: this PyTorch, {torch.__version__}, is built for CPUs alone"
    return NO_CUDA


def check_has_kernels(device: torch.device) -> None:
    """Check that this PyTorch was compiled for the CUDA GPU `device`.

    Raises:
        ResourceError: it was not, and the first kernel would fail.
    """
    architectures = torch.cuda.get_arch_list()
    if torch.version.hip or not architectures:
        return
    major, minor = torch.cuda.get_device_capability(device)
    for architecture in architectures:
        kind, _, digits = architecture.partition("_")
        compiled = divmod(int(re.sub(r"\D", "", digits)), 10)
        # Machine code runs on later GPUs of the same generation, `compute` code on all later ones.
        if compiled <= (major, minor) and (kind == "compute" or compiled[0] == major):
            return
    raise ResourceError(
        f"this PyTorch, {torch.__version__}, has no code for this GPU, of compute capability "
        f"{major}.{minor}, but for {', '.join(architectures)}; install one that has (docs/gpu.md), "
        "or use ",
        Option("device", "cpu"),
    )


def _own_cuda_device() -> torch.device:
    """The GPU of this process: torchrun starts one for each."""
    local_rank = os.environ.get("LOCAL_RANK")
    if local_rank is None:
        return torch.device("cuda")
    if not local_rank.isdecimal():
        raise ResourceError(
            f"LOCAL_RANK is {local_rank!r} in the environment and has to be a number; start with "
            "torchrun, or unset it"
        )
    own, found = int(local_rank), torch.cuda.device_count()
    # Some launchers show each process one GPU.
    if found == 1 and os.environ.get("CUDA_VISIBLE_DEVICES"):
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
    # Until one is accepted:
    if any(mallopt(M_MMAP_THRESHOLD, threshold) for threshold in MMAP_THRESHOLDS):
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
