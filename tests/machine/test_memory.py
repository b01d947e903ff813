"""What a container leaves of the machine, read from trees of cgroups that are written here."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mt_cli.machine import limits
from mt_cli.machine.limits import bound_spinning, cpu_quota, free_memory, total_memory, usable_cores

GIB = 1 << 30
Cgroups = Callable[[str, Mapping[str, object]], None]


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroups:
    """Sets what the system says: the lines of /proc/self/cgroup, and files below /sys/fs/cgroup."""
    root, own, memory = tmp_path / "cgroup", tmp_path / "self", tmp_path / "meminfo"
    for name, path in (("CGROUPS", root), ("OWN_CGROUPS", own), ("MEMINFO", memory)):
        monkeypatch.setattr(limits, name, path)
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * GIB // 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    memory.write_text("MemTotal:  67108864 kB\nMemFree:  1048576 kB\nMemAvailable:  41943040 kB\n")

    def write(lines: str, files: Mapping[str, object]) -> None:
        own.write_text(lines)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    return write


def found() -> tuple[float | None, int, int | None, int | None]:
    """Quota of cores, usable cores, and GiB of memory: in all, and free."""
    total, free = total_memory(), free_memory()
    return cpu_quota(), usable_cores(), total and total // GIB, free and free // GIB


@dataclass(frozen=True)
class Tree:
    """A tree of cgroups, and what the process may use of the machine's 8 cores and 64 GiB."""

    own: str
    files: Mapping[str, object]
    quota: float | None = None
    cores: int = 8
    total: int = 64
    free: int = 40


V1 = "5:cpu,cpuacct:{0}\n4:cpuset:{0}\n3:memory:{0}\n1:name=systemd:{0}\n"
CPU_V1 = "cpu,cpuacct/job/cpu"
MEMORY_V1 = "memory/job/memory"
TREES = {
    "no limits": Tree("0::/\n", {}),
    "cores and memory": Tree(
        "0::/job\n",
        {"job/cpu.max": "200000 100000", "job/memory.max": 4 * GIB},
        quota=2.0,
        cores=2,
        total=4,
        free=4,
    ),
    "part of a core": Tree("0::/job\n", {"job/cpu.max": "50000 100000"}, quota=0.5, cores=1),
    "limits of those above": Tree(
        "0::/a/b/c\n",
        {
            "a/cpu.max": "300000 100000",
            "a/b/cpu.max": "400000 100000",
            "a/b/memory.max": 8 * GIB,
            "a/b/c/cpu.max": "max 100000",
            "a/b/c/memory.max": 16 * GIB,
        },
        quota=3.0,
        cores=3,
        total=8,
        free=8,
    ),
    "others' limits": Tree(
        "0::/a/b\n",
        {"a/c/cpu.max": "100000 100000", "other/memory.max": GIB, "a/b/c/cpu.max": "1 1"},
    ),
    "a container that sees its own as the root": Tree(
        "0::/docker/1234\n",
        {"cpu.max": "200000 100000", "memory.max": 2 * GIB},
        quota=2.0,
        cores=2,
        total=2,
        free=2,
    ),
    "memory in use": Tree(
        "0::/a/b\n",
        {
            "a/memory.max": 8 * GIB,
            "a/memory.current": 5 * GIB,
            "a/b/memory.max": 6 * GIB,
            "a/b/memory.current": GIB,
        },
        total=6,
        free=3,
    ),
    "memory from which on processes are slowed down": Tree(
        "0::/job\n",
        {"job/memory.max": "max", "job/memory.high": 4 * GIB, "job/memory.current": GIB},
        total=4,
        free=3,
    ),
    "version 1": Tree(
        V1.format("/job"),
        {
            f"{CPU_V1}.cfs_quota_us": 200000,
            f"{CPU_V1}.cfs_period_us": 100000,
            f"{MEMORY_V1}.limit_in_bytes": 4 * GIB,
            f"{MEMORY_V1}.usage_in_bytes": 3 * GIB,
        },
        quota=2.0,
        cores=2,
        total=4,
        free=1,
    ),
    "version 1, unlimited": Tree(
        V1.format("/job"),
        {
            f"{CPU_V1}.cfs_quota_us": -1,
            f"{CPU_V1}.cfs_period_us": 100000,
            f"{MEMORY_V1}.limit_in_bytes": (1 << 63) - 4096,
        },
    ),
    "nonsense": Tree("0::/job\n", {"job/cpu.max": "", "job/memory.max": "much"}),
}


@pytest.mark.parametrize("name", TREES)
def test_limits_are_the_lowest_of_the_own_cgroup_and_above(cgroups: Cgroups, name: str) -> None:
    tree = TREES[name]
    cgroups(tree.own, tree.files)
    assert found() == (tree.quota, tree.cores, tree.total, tree.free)


def test_a_system_without_any_of_this_limits_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CGROUPS", "OWN_CGROUPS", "MEMINFO"):
        monkeypatch.setattr(limits, name, tmp_path / "none")
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert found() == (None, 1, None, None)


@pytest.mark.parametrize(
    ("load", "cores", "expected"),
    [(2.0, 2, False), (3.0, 2, True), (9.0, 64, False), (0.0, None, False)],
)
def test_a_machine_is_overloaded_where_more_threads_run_than_it_has_cores(
    monkeypatch: pytest.MonkeyPatch, load: float, cores: int | None, expected: bool
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 99.0))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert limits.is_overloaded() is expected


# How threads wait


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}),
        ({"GOMP_SPINCOUNT": "5"}, {"GOMP_SPINCOUNT": "5", "KMP_BLOCKTIME": "1"}),
        ({"KMP_BLOCKTIME": "infinite"}, {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "infinite"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
        ({"OMP_WAIT_POLICY": "passive"}, {"OMP_WAIT_POLICY": "passive"}),
    ],
    ids=["nothing", "GNU's", "LLVM's", "active", "passive"],
)
def test_waiting_threads_sleep_soon_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, chosen: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    for name in names:
        monkeypatch.setenv(name, "")  # so that what is set below is undone too
        monkeypatch.delenv(name)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    bound_spinning()
    assert {name: os.environ[name] for name in names if name in os.environ} == expected
