"""The machine: device, precision, threads and seeds."""

import contextlib
import ctypes
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from mt_cli.config.schema import MAX_THREADS, Device, GraphsChoice, Precision, PrecisionChoice
from mt_cli.errors import ResourceError
from mt_cli.machine.process import usable_cores

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
INT_MAX = 2**31 - 1
MMAP_THRESHOLDS = (1 << 30, 1 << 25)
"""The largest values that glibc accepts: since version 2.35, and before."""
IMPORTED_BY = os.getpid()
FIRST_MATRIX_UNITS = (7, 0)
"""Compute capability of the first GPUs with tensor cores for fp16."""
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
    """CPU threads when used as a library; 0 keeps the caller's number."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of matrix products."""
        return DTYPES[self.precision]

    @contextlib.contextmanager
    def with_threads(self) -> Iterator[None]:
        """Use `threads` CPU threads in the block, then restore the previous number."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextlib.contextmanager
    def inference(self) -> Iterator[None]:
        """Compute in this precision in the block, without gradients."""
        # Inference mode is slightly faster, but makes `autocast` convert matrices on every use.
        no_gradients = torch.inference_mode() if self.precision == "fp32" else torch.no_grad()
        with no_gradients, self.autocast(), self.attention():
            yield

    def attention(self) -> contextlib.AbstractContextManager[object]:
        """A context in which a GPU's attention uses kernels without a plan per shape."""
        if self.device.type == "cpu":
            return contextlib.nullcontext()
        # Not cuDNN: it builds a plan for each new shape, and sentences have many shapes.
        return sdpa_kernel(
            [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        )

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """A context in which matrix products run in this precision, for decoding.

        Training uses a `WorkingCopy` instead, whose output layer stays in fp32 for its gradient.
        That would slow down decoding: in bf16, the layer is 2.7 times as fast (256 rows, 192 x
        8,000, AMD Zen 4).
        """
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)


def set_up_process(*, threads: int = 0) -> None:
    """Apply settings to the whole process: for the CLI, not for use as a library.

    These are CPU threads (0: PyTorch's choice), memory management, and full fp32: TensorFloat-32 is
    off, whatever the environment says.

    Raises:
        ResourceError: too many threads.
    """
    if threads > MAX_THREADS:  # torch does not accept more
        raise ResourceError(f"{threads} threads: use at most {MAX_THREADS}")
    if threads:
        torch.set_num_threads(threads)
    elif "OMP_NUM_THREADS" not in os.environ and usable_cores() < torch.get_num_threads():
        torch.set_num_threads(usable_cores())  # PyTorch ignores a container's CPU quota
    _keep_freed_memory()
    torch.set_float32_matmul_precision("highest")


def survive_fork() -> None:
    """Make forked processes use one thread: PyTorch would wait forever for the parent's threads."""
    if os.getpid() != IMPORTED_BY:
        torch.set_num_threads(1)


def choose_runtime(
    *, device: Device = "auto", precision: PrecisionChoice = "auto", graphs: GraphsChoice = "off"
) -> Runtime:
    """Choose the device, and precision and CUDA graphs for it.

    Raises:
        ResourceError: the device does not exist.
    """
    chosen = _choose_device(device)
    suited = best_precision(chosen) if precision == "auto" else precision
    return Runtime(chosen, suited, graphs=graphs == "auto" and chosen.type == "cuda")


def best_precision(device: torch.device) -> Precision:
    """The fastest training precision on `device`; on a CPU, training tests if bf16 is faster."""
    if device.type != "cuda":
        return "bf16" if device.type == "cpu" and fast_bf16() else "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "fp16" if torch.cuda.get_device_capability(device) >= FIRST_MATRIX_UNITS else "fp32"


def _choose_device(device: Device) -> torch.device:
    if device == "cpu":
        return torch.device("cpu")
    if device == "mps":  # only on request: untested
        if not torch.backends.mps.is_available():
            raise ResourceError("no Apple GPU found; use --device cpu or --device auto")
        return torch.device("mps")
    if not torch.cuda.is_available():  # if there is a GPU, PyTorch warns why it cannot use it
        if device == "cuda":
            raise ResourceError("no CUDA device found; use --device cpu or --device auto")
        return torch.device("cpu")
    return _own_cuda_device()


def _own_cuda_device() -> torch.device:
    """The GPU of this process: torchrun starts one process per GPU."""
    local_rank = os.environ.get("LOCAL_RANK")
    if local_rank is None:
        return torch.device("cuda")
    if not local_rank.isdecimal():
        raise ResourceError(f"LOCAL_RANK is {local_rank!r}, not a number; unset it")
    own = int(local_rank)
    found = torch.cuda.device_count()
    if found == 1 and os.environ.get("CUDA_VISIBLE_DEVICES"):
        own = 0  # some launchers show each process only its own GPU
    if own >= found:
        raise ResourceError(
            f"process {own + 1} has no GPU of its own; start at most {found} processes"
        )
    torch.cuda.set_device(own)
    return torch.device("cuda", own)


def _keep_freed_memory() -> None:
    """Make glibc keep freed blocks; returning them costs a page fault per 4 KiB at every step."""
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    # `any` stops at the first accepted value.
    if any(mallopt(M_MMAP_THRESHOLD, threshold) for threshold in MMAP_THRESHOLDS):
        # Only if the other was accepted: alone, it would freeze the mmap threshold at 128 KiB.
        mallopt(M_TRIM_THRESHOLD, INT_MAX)


def seed_dropout(seed: int) -> None:
    """Seed the generators that dropout draws from: the CPU's, and the GPU's if one is in use."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a hundred times as long
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)


# Processor


def fast_bf16() -> str:
    """The CPU's fast bf16 instructions, as used by oneDNN: `AMX`, `BF16` vectors, or none ("")."""
    most = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    is_unlimited = most in ("", "ALL", "DEFAULT")
    if torch.cpu._is_amx_tile_supported() and (is_unlimited or "AMX" in most):
        return "AMX"
    may_use = is_unlimited or any(name in most for name in ("BF16", "FP16", "AVX10", "AMX"))
    return "BF16" if torch.cpu._is_avx512_bf16_supported() and may_use else ""


# Facts for env.json

GIB = 1 << 30
PACKAGE = Path(__file__).resolve().parents[1]


def describe_checkout(package: Path = PACKAGE) -> dict[str, str | bool | None]:
    """The git `commit`, and whether the files of `package` differ from it (`commit_modified`).

    Empty if git is missing or does not track the package, as in an installed one.
    """
    # Without this check, an environment inside another repository would report that repository's
    # commit.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {}
    changes = _git(package, "status", "--porcelain", "--", ".")
    return {"commit": _git(package, "rev-parse", "HEAD"), "commit_modified": bool(changes)}


def _git(folder: Path, *args: str) -> str | None:
    """The output of git in `folder`; None if it fails."""
    command = ["git", "--no-optional-locks", *args]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


PACKAGES = ("sentencepiece", "spacy", "torchtext", "sacrebleu", "numpy")
"""Packages besides torch whose version may affect results."""
CPU_INFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """The processor's model name if known, else its architecture."""
    with contextlib.suppress(OSError):
        for line in CPU_INFO.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            # "model name" on PCs, "Model" on most ARM boards.
            if name.strip() in ("model name", "Model") and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown processor"


def describe_processor() -> str:
    """The processor and its vector units, such as `AMD EPYC, 2 cores, AVX-512, BF16`."""
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
    with contextlib.suppress(AttributeError, ValueError, OSError):  # not on every system
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        facts["memory_gib"] = round(memory / GIB, 1)
    if runtime.device.type == "cuda":
        memory = torch.cuda.get_device_properties(runtime.device).total_memory
        facts["gpu_memory_gib"] = round(memory / GIB, 1)
        facts["gpu"] = torch.cuda.get_device_name(runtime.device)
        facts["capability"] = ".".join(map(str, torch.cuda.get_device_capability(runtime.device)))
        facts["cuda"] = torch.version.cuda or "none"
    return facts
