"""The cores that this process may use, as a container may limit them, and how it waits for them."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


BOUNDED_SPIN = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
"""How long OpenMP's threads spin before they sleep: GNU's in rounds, LLVM's and Intel's in ms."""


def bound_spinning() -> None:
    """Let OpenMP's threads sleep soon when they wait, unless the user has chosen how they wait.

    By default they spin for long, and where another process needs a core, all of them then wait for
    the one thread that has none: training was 4 to 20 times slower. It has to be called before
    torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in BOUNDED_SPIN.items():
            os.environ.setdefault(name, value)


def is_overloaded() -> bool:
    """Whether more threads want to run than the machine has cores, in the mean of a minute."""
    try:
        load, _, _ = os.getloadavg()
    except (AttributeError, OSError):  # not on every system
        return False
    return load > (os.cpu_count() or 1) + 0.75


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity, or fewer if a container limits it."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on every system
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota() -> float | None:
    """Cores' worth of time that a container may use, such as 0.5; None if it is not limited."""
    quotas = []
    for folder in _cgroups("cpu"):
        values = _read(folder / "cpu.max").split()  # version 2: quota and period, or max
        if not values:  # version 1
            values = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
        if len(values) == 2 and all(value.isdecimal() and int(value) > 0 for value in values):
            quotas.append(int(values[0]) / int(values[1]))
    return min(quotas, default=None)


def _cgroups(controller: str) -> Iterator[Path]:
    """The folders of the cgroup of this process and of those above it, of either version.

    A container may see its own cgroup as the root.
    """
    for line in _read(OWN_CGROUPS).splitlines():
        _, controllers, place = line.split(":", 2)
        if not controllers:  # version 2
            yield from _and_above(CGROUPS, place)
        elif controller in controllers.split(","):
            # Folders are called after all of their controllers, in any order, or linked to by one.
            names = {controllers, controller, ",".join(reversed(controllers.split(",")))}
            for name in names:
                yield from _and_above(CGROUPS / name, place)


def _and_above(root: Path, place: str) -> Iterator[Path]:
    """The folder of `place` below `root`, and all those between them."""
    inner = root / place.lstrip("/")
    yield inner
    yield from (folder for folder in inner.parents if folder.is_relative_to(root))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
