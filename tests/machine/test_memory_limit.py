"""The memory that a process may take: of the machine, of its container, and by `ulimit -v`."""

import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mt_cli.errors import ResourceError
from mt_cli.machine import memory_limit
from mt_cli.machine.memory_limit import LEAST_ADDRESS_SPACE, check_address_space, memory_size, usable_memory

NO_LIMIT_V1 = 0x7FFFFFFFFFFFF000
"""What version 1 says where there is no limit."""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the system's accounts: a machine of 8,000 bytes without any limit."""
    monkeypatch.setattr(memory_limit, "memory_size", lambda: 8000)
    monkeypatch.setattr(memory_limit, "CONTROL_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory_limit, "OWN_CONTROL_GROUPS", tmp_path / "self")
    limit_address_space(monkeypatch, resource.RLIM_INFINITY)
    return tmp_path


def limit_address_space(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))


def write_groups(system: Path, own: str, limits: Mapping[str, object]) -> None:
    system.joinpath("self").write_text(own)
    for name, limit in limits.items():
        path = system / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")


@pytest.mark.usefixtures("system")
def test_a_process_without_limits_may_take_the_whole_machine() -> None:
    assert usable_memory() == 8000


@pytest.mark.parametrize(
    ("own", "limits", "usable"),
    [
        ("0::/", {"memory.max": 3000}, 3000),
        ("0::/a/b", {"a/b/memory.max": 3000, "a/memory.max": 2000, "memory.max": 5000}, 2000),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": 4000}, 4000),
        ("0::/", {"memory.max": 9000}, 8000),
        ("0::/", {"memory.max": "damaged"}, 8000),
        ("5:cpu:/\n4:memory:/", {"memory/memory.limit_in_bytes": 3000}, 3000),
        ("4:hugetlb,memory:/a", {"memory/a/memory.limit_in_bytes": 3000}, 3000),
        ("4:memory:/name/of/the/host", {"memory/memory.limit_in_bytes": 3000}, 3000),
        ("4:memory:/\n0::/", {"memory/memory.limit_in_bytes": NO_LIMIT_V1}, 8000),
        ("4:memory:/\n0::/", {"memory/memory.limit_in_bytes": 3000, "memory.max": 2000}, 2000),
        ("not as it should be", {}, 8000),
    ],
    ids=[
        "version 2", "outer group", "no limit of its own", "more than there is", "damaged",
        "version 1", "with another controller", "host's name", "version 1 without limit", "both", "unknown",
    ],
)  # fmt: skip
def test_the_limit_of_a_container_counts(
    system: Path, own: str, limits: Mapping[str, object], usable: int
) -> None:
    write_groups(system, own, limits)
    assert usable_memory() == usable


def test_the_smallest_of_all_limits_counts(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_groups(system, "0::/", {"memory.max": 3000})
    limit_address_space(monkeypatch, 2000)
    assert usable_memory() == 2000


def test_memory_is_unknown_where_the_system_says_nothing(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert system.is_dir()
    monkeypatch.setattr(memory_limit, "memory_size", lambda: None)
    assert usable_memory() is None


def test_this_machine_says_how_much_memory_there_is() -> None:
    size, usable = memory_size(), usable_memory()
    assert size is not None
    assert usable is not None
    assert 1 << 28 < usable <= size


@pytest.mark.parametrize("limit", [LEAST_ADDRESS_SPACE, resource.RLIM_INFINITY], ids=["least", "none"])
def test_enough_room_for_the_libraries_passes(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    limit_address_space(monkeypatch, limit)
    check_address_space()


def test_too_little_room_for_the_libraries_is_told_before_they_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit_address_space(monkeypatch, LEAST_ADDRESS_SPACE - 1)
    complaint = r"out of memory: this process may take up 767 MiB \(ulimit -v\), and needs 768 MiB at least"
    with pytest.raises(ResourceError, match=complaint):
        check_address_space()


@pytest.mark.processes
@pytest.mark.parametrize(
    "verb",
    [["prepare", "sample"], ["train", "sample"], ["evaluate", "run"], ["translate", "run"]],
    ids=lambda verb: verb[0],
)
@pytest.mark.parametrize("limit_mib", [300, 500])
def test_command_in_too_little_memory_ends_with_a_hint(
    tmp_path: Path, verb: list[str], limit_mib: int
) -> None:
    limited = call_limited(limit_mib, *verb, cwd=tmp_path)
    assert (limited.returncode, limited.stdout) == (5, "")
    assert limited.stderr.startswith("error: out of memory")
    assert limited.stderr.endswith("raise the limit\n")


@pytest.mark.processes
def test_help_needs_little_memory(tmp_path: Path) -> None:
    assert call_limited(300, "train", "--help", cwd=tmp_path).returncode == 0


def call_limited(limit_mib: int, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run mt-cli where `ulimit -v` allows `limit_mib`."""
    limited = ["sh", "-c", f'ulimit -v {limit_mib << 10}; exec "$0" "$@"', sys.executable]
    command = [*limited, "-m", "mt_cli", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
