"""Facts about the machine and the code that help to interpret a result."""

import contextlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import torch

from mt_cli.machine.device import Runtime, fast_bf16

GIB = 1 << 30
PACKAGE = Path(__file__).resolve().parents[1]


def describe_checkout(package: Path = PACKAGE) -> dict[str, str | bool | None]:
    """`commit` of git, and whether the files of `package` differ from it (`commit_modified`).

    Empty where git is missing or does not track the package, as when it was installed.
    """
    # Without this question, an environment inside somebody's repository would name that
    # repository's commit.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {}
    changes = _git(package, "status", "--porcelain", "--", ".")
    return {"commit": _git(package, "rev-parse", "HEAD"), "commit_modified": bool(changes)}


def _git(folder: Path, *args: str) -> str | None:
    """What git prints in `folder`; None if it fails."""
    command = ["git", "--no-optional-locks", *args]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


PACKAGES = ("sentencepiece", "spacy", "torchtext", "sacrebleu", "numpy")
"""Packages besides torch whose version may affect a result."""


CPU_INFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """The processor's model name where the system gives one, else its architecture."""
    with contextlib.suppress(OSError):
        for line in CPU_INFO.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            # The first is that of PCs, the other that of most ARM boards.
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
