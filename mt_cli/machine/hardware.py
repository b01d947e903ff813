"""What the machine is made of: its processor, its memory, and how much of that is in use.

Reads the operating system's accounts; knows nothing of devices that were chosen or of work that is done.
"""

import contextlib
import os
import platform
import resource
import sys
from pathlib import Path

import torch

GIB, MB = 1 << 30, 10**6
CPU_INFO, OWN_MEMORY = Path("/proc/cpuinfo"), Path("/proc/self/statm")
CPU_INFO_NAMES = ("model name", "Model")
"""How the line is called that names the processor: on PCs, and on most ARM boards."""


def processor_name() -> str:
    """The processor's model, as its maker calls it where the system says so, else its architecture."""
    with contextlib.suppress(OSError):
        fields = [line.partition(":") for line in CPU_INFO.read_text(errors="replace").splitlines()]
        found = {name.strip(): " ".join(value.split()) for name, _, value in reversed(fields)}  # first wins
        for name in CPU_INFO_NAMES:
            if found.get(name):
                return found[name]
    return platform.processor() or platform.machine() or "unknown processor"


def has_avx512() -> bool:
    """Whether the processor has 512-bit vectors."""
    return bool(torch.cpu._is_avx512_supported())


def has_avx512_bf16() -> bool:
    """Whether 512-bit vectors multiply bf16, and oneDNN may use that."""
    return bool(torch.cpu._is_avx512_bf16_supported()) and _onednn_may_use("BF16", "FP16", "AVX10", "AMX")


def has_amx() -> bool:
    """Whether there are tiles, which multiply bf16 matrices fast, and oneDNN may use them."""
    return bool(torch.cpu._is_amx_tile_supported()) and _onednn_may_use("AMX")


def is_fast_in_bf16() -> bool:
    """Whether the processor multiplies bf16 matrices faster than fp32 matrices."""
    return has_amx() or has_avx512_bf16()


def _onednn_may_use(*instruction_sets: str) -> bool:
    """Whether oneDNN is not limited, or to instructions whose name has one of these parts."""
    most = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    return most in ("", "ALL", "DEFAULT") or any(name in most for name in instruction_sets)


def describe_processor() -> str:
    """The processor with what makes matrix products fast, such as `AMD EPYC, 2 cores, AVX-512, BF16`."""
    cores = os.cpu_count() or 1
    described = [processor_name(), f"{cores} core{'' if cores == 1 else 's'}"]
    if has_avx512():
        described.append("AVX-512")
    if is_fast_in_bf16():
        described.append("AMX" if has_amx() else "BF16")
    return ", ".join(described)


def resident_memory() -> int:
    """Bytes of memory that this process holds; the most that it has held where the system says no more."""
    try:
        return int(OWN_MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def describe_memory_use(device: torch.device) -> str:
    """Memory in use, and on a GPU the most that was taken there, such as `612 MB`."""
    used = f"{resident_memory() / MB:,.0f} MB"
    if device.type != "cuda":
        return used
    return f"{used}, {torch.cuda.max_memory_allocated(device) / MB:,.0f} MB at most on the GPU"
