"""What a container leaves of the machine, read from trees of cgroups that are written here."""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mt_cli.machine import limits
from mt_cli.machine.limits import bound_spinning, cpu_quota, free_memory, total_memory, usable_cores

GIB = 1 << 30
Cgroups = Callable[[str, Mapping[str, str]], None]


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

    def write(lines: str, files: Mapping[str, str]) -> None:
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


def bytes_of(gib: float) -> str:
    return str(int(gib * GIB))


V1 = "5:cpu,cpuacct:{0}\n4:cpuset:{0}\n3:memory:{0}\n1:name=systemd:{0}\n"
TREES: dict[str, tuple[str, dict[str, str], tuple[float | None, int, int, int]]] = {
    "no limits": ("0::/\n", {}, (None, 8, 64, 40)),
    "unlimited": (
        "0::/job\n",
        {"job/cpu.max": "max 100000", "job/memory.max": "max"},
        (None, 8, 64, 40),
    ),
    "cores and memory": (
        "0::/job\n",
        {"job/cpu.max": "200000 100000", "job/memory.max": bytes_of(4)},
        (2.0, 2, 4, 4),
    ),
    "part of a core": ("0::/job\n", {"job/cpu.max": "50000 100000"}, (0.5, 1, 64, 40)),
    "a core and a half": ("0::/job\n", {"job/cpu.max": "150000 100000"}, (1.5, 2, 64, 40)),
    "more than the machine has": (
        "0::/job\n",
        {"job/cpu.max": "6400000 100000", "job/memory.max": bytes_of(500)},
        (64.0, 8, 64, 40),
    ),
    "limits of those above": (
        "0::/a/b/c\n",
        {
            "a/cpu.max": "300000 100000",
            "a/b/cpu.max": "400000 100000",
            "a/b/memory.max": bytes_of(8),
            "a/b/c/cpu.max": "max 100000",
            "a/b/c/memory.max": bytes_of(16),
        },
        (3.0, 3, 8, 8),
    ),
    "others' limits": (
        "0::/a/b\n",
        {"a/c/cpu.max": "100000 100000", "other/memory.max": bytes_of(1), "a/b/c/cpu.max": "1 1"},
        (None, 8, 64, 40),
    ),
    "a container that sees its own as the root": (
        "0::/docker/1234\n",
        {"cpu.max": "200000 100000", "memory.max": bytes_of(2)},
        (2.0, 2, 2, 2),
    ),
    "memory in use": (
        "0::/a/b\n",
        {
            "a/memory.max": bytes_of(8),
            "a/memory.current": bytes_of(5),
            "a/b/memory.max": bytes_of(6),
            "a/b/memory.current": bytes_of(1),
        },
        (None, 8, 6, 3),
    ),
    "more memory in use than the limit": (
        "0::/job\n",
        {"job/memory.max": bytes_of(4), "job/memory.current": bytes_of(5)},
        (None, 8, 4, 0),
    ),
    "memory from which on processes are slowed down": (
        "0::/job\n",
        {
            "job/memory.max": "max",
            "job/memory.high": bytes_of(4),
            "job/memory.current": bytes_of(1),
        },
        (None, 8, 4, 3),
    ),
    "version 1": (
        V1.format("/job"),
        {
            "cpu,cpuacct/job/cpu.cfs_quota_us": "200000",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            "memory/job/memory.limit_in_bytes": bytes_of(4),
            "memory/job/memory.usage_in_bytes": bytes_of(3),
        },
        (2.0, 2, 4, 1),
    ),
    "version 1, unlimited": (
        V1.format("/job"),
        {
            "cpu,cpuacct/job/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            "memory/job/memory.limit_in_bytes": str((1 << 63) - 4096),
        },
        (None, 8, 64, 40),
    ),
    "version 1, controllers by themselves": (
        V1.format("/job"),
        {
            "cpu/job/cpu.cfs_quota_us": "300000",
            "cpu/job/cpu.cfs_period_us": "100000",
            "memory/job/memory.limit_in_bytes": bytes_of(4),
        },
        (3.0, 3, 4, 4),
    ),
    "version 1, controllers in another order": (
        V1.format("/job"),
        {
            "cpuacct,cpu/job/cpu.cfs_quota_us": "300000",
            "cpuacct,cpu/job/cpu.cfs_period_us": "100000",
        },
        (3.0, 3, 64, 40),
    ),
    "version 1, limits of those above": (
        V1.format("/kubepods/pod/job"),
        {
            "cpu,cpuacct/kubepods/pod/cpu.cfs_quota_us": "100000",
            "cpu,cpuacct/kubepods/pod/cpu.cfs_period_us": "50000",
            "cpu,cpuacct/kubepods/pod/job/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/kubepods/pod/job/cpu.cfs_period_us": "50000",
            "memory/kubepods/memory.limit_in_bytes": bytes_of(12),
        },
        (2.0, 2, 12, 12),
    ),
    "version 1 in a container": (
        V1.format("/docker/1234"),
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "200000",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": bytes_of(3),
        },
        (2.0, 2, 3, 3),
    ),
    "both versions": (
        f"{V1.format('/job')}0::/job\n",
        {"memory/job/memory.limit_in_bytes": bytes_of(4), "job/cpu.max": "max 100000"},
        (None, 8, 4, 4),
    ),
    "nonsense": ("0::/job\n", {"job/cpu.max": "", "job/memory.max": "much"}, (None, 8, 64, 40)),
}


@pytest.mark.parametrize("name", TREES)
def test_limits_are_the_lowest_of_the_own_cgroup_and_above(cgroups: Cgroups, name: str) -> None:
    lines, files, expected = TREES[name]
    cgroups(lines, files)
    assert found() == expected


def test_fewer_cores_of_the_affinity_count_before_a_larger_quota(
    cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroups("0::/job\n", {"job/cpu.max": "500000 100000"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores() == 2


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


def test_the_real_machine_has_what_python_says_at_most() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    total, free = total_memory(), free_memory()
    assert total is not None
    assert free is not None
    assert 0 < free <= total <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert math.isfinite(cpu_quota() or 0.0)


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
