"""The machine: device, precision, threads, seeds and memory, and what it ran out of."""

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from mt_cli.config.schema import MOST_THREADS, Device, GraphsChoice, Precision, PrecisionChoice
from mt_cli.errors import MEMORY, Option, OutOfMemoryError, ResourceError, shortage
from mt_cli.machine.limits import free_memory, total_memory, usable_cores

GIB = 1 << 30
NUMBER_BYTES = 4
NUMBERS_IN_TRAINING = 4
"""For each parameter: the weight, its gradient and Adam's two means."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
INT_MAX = 2**31 - 1
MMAP_THRESHOLDS = (1 << 30, 1 << 25)
"""The largest that glibc accepts: since 2.35, and before. It refuses larger ones."""
PACKAGES = ("sentencepiece", "spacy", "torchtext", "sacrebleu", "numpy")
"""Packages besides torch whose version may affect a result."""
FIRST_MATRIX_UNITS = (7, 0)
"""Compute capability of the first GPUs with tensor cores, which multiply fp16."""
DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
CPU_INFO = Path("/proc/cpuinfo")


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
    if threads > MOST_THREADS:  # torch takes no such number
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
    """Have glibc reuse large blocks: giving them back costs a page fault per 4 KiB at every step."""
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    if any(
        mallopt(M_MMAP_THRESHOLD, threshold) for threshold in MMAP_THRESHOLDS
    ):  # until one is accepted
        # Set only with the other: alone, it would freeze the mmap threshold at 128 KiB, which is
        # worse.
        mallopt(M_TRIM_THRESHOLD, INT_MAX)


def seed_everything(seed: int) -> None:
    """Seed torch's generators that dropout draws from: the CPU's, and the GPU's where one is in
    use.
    """
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a hundred times as long
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)


# Which processor


def fast_bf16() -> str:
    """What multiplies bf16 matrices fast, if oneDNN may use it: `AMX` tiles, `BF16` vectors, or
    nothing.
    """
    most = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    is_unlimited = most in ("", "ALL", "DEFAULT")
    if torch.cpu._is_amx_tile_supported() and (is_unlimited or "AMX" in most):
        return "AMX"
    may_use = is_unlimited or any(name in most for name in ("BF16", "FP16", "AVX10", "AMX"))
    return "BF16" if torch.cpu._is_avx512_bf16_supported() and may_use else ""


def processor_name() -> str:
    """The processor's model, as its maker calls it where the system says so, else its architecture."""
    with contextlib.suppress(OSError):
        for line in CPU_INFO.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if (
                name.strip() in ("model name", "Model") and value.strip()
            ):  # on PCs, and on most ARM boards
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown processor"


def describe_processor() -> str:
    """The processor with what makes matrix products fast, such as `AMD EPYC, 2 cores, AVX-512,
    BF16`.
    """
    cores = os.cpu_count() or 1
    described = [processor_name(), f"{cores} core{'' if cores == 1 else 's'}"]
    described += ["AVX-512"] if torch.cpu._is_avx512_supported() else []
    return ", ".join(filter(None, [*described, fast_bf16()]))


def describe_machine(runtime: Runtime) -> dict[str, str | int | float]:
    """Facts about the machine that help to interpret a result."""
    facts: dict[str, str | int | float] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            facts[package] = metadata.version(package)
    facts |= {
        "device": str(runtime.device),
        "precision": runtime.precision,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "processor": processor_name(),
        "avx512": bool(torch.cpu._is_avx512_supported()),
        "amx": fast_bf16() == "AMX",
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
    }
    if memory := memory_of(torch.device("cpu")):
        facts["memory_gib"] = round(memory / GIB, 1)
    if runtime.device.type == "cuda":
        facts["gpu_memory_gib"] = round((memory_of(runtime.device) or 0) / GIB, 1)
        facts["gpu"] = torch.cuda.get_device_name(runtime.device)
        facts["capability"] = ".".join(map(str, torch.cuda.get_device_capability(runtime.device)))
        facts["cuda"] = torch.version.cuda or "none"
        facts["driver"] = torch._C._cuda_getDriverVersion()  # type: ignore[attr-defined]
    return facts


# Memory


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
    """Make sure that so many parameters can be held by `device`, or trained there if they are
    `is_trained`.

    Batches come on top: how much they take shows when the first is computed.

    Raises:
        ResourceError: they do not fit.
    """
    memory = memory_of(device or torch.device("cpu"))
    needed = num_parameters * NUMBER_BYTES * (NUMBERS_IN_TRAINING if is_trained else 1)
    if memory is not None and needed > memory:
        verb = "and their training take" if is_trained else "take"
        raise ResourceError(
            f"the model does not fit: {num_parameters:,} parameters {verb} {needed / GIB:,.1f} "
            f"GiB, and there are {memory / GIB:,.1f} GiB; lower model.d_model, model.d_ff or the "
            "number of layers"
        )


def release_memory(device: torch.device) -> None:
    """Give back what PyTorch keeps for later of `device`'s memory, so that it can be had in other
    pieces.
    """
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
