"""The shim: built with the machine's C compiler, loaded before everything else, armed in a child.

Where there is no compiler, a stand-in of Python takes its place, which sees the calls that Python code makes.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from faults.plan import Plan

SOURCE = Path(__file__).with_name("shim.c")
COMPILERS = ("cc", "gcc", "clang")
Arm = Callable[[Plan], None]
"""Lets a plan hold for this process from now on."""


def build_shim(folder: Path) -> Path | None:
    """The library, built in `folder`; None where that cannot be done."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    library = folder / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, check=False)
    return library if done.returncode == 0 else None


def preloaded(library: Path | None) -> dict[str, str]:
    """The environment of a process that is to be under the shim."""
    return {**os.environ, **({"LD_PRELOAD": str(library)} if library else {})}


def find_shim() -> Arm | None:
    """What arms the shim that this process was started with; None without one."""
    loaded = ctypes.CDLL(None)
    try:
        shim_arm = loaded.shim_arm
    except AttributeError:
        return None
    shim_arm.argtypes, shim_arm.restype = [ctypes.c_void_p], None
    kept: list[Plan] = []

    def arm(plan: Plan) -> None:
        kept.append(plan)  # its memory has to outlive this call
        shim_arm(ctypes.addressof(plan.record))

    return arm
