"""What the machine says of itself, against the system's own accounts."""

import mmap
import os
from pathlib import Path

import pytest
import torch
from processor import pretend_processor

from mt_cli.machine import hardware
from mt_cli.machine.hardware import (
    MB,
    describe_memory_use,
    describe_processor,
    processor_name,
    resident_memory,
)
from mt_cli.machine.memory_limit import memory_size

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("processor\t: 0\nmodel name\t: Some  CPU @ 2.5GHz\nmodel name\t: Other\n", "Some CPU @ 2.5GHz"),
        ("processor\t: 0\nBogoMIPS\t: 50\nModel\t\t: Raspberry Pi 5\n", "Raspberry Pi 5"),
    ],
    ids=["PC", "ARM board"],
)
def test_processor_is_named_as_the_system_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, name: str
) -> None:
    monkeypatch.setattr(hardware, "CPU_INFO", tmp_path / "cpuinfo")
    tmp_path.joinpath("cpuinfo").write_text(content)
    assert processor_name() == name


def test_processor_without_a_name_is_called_by_its_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "CPU_INFO", tmp_path / "none")
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert processor_name() == "riscv64"


@pytest.mark.parametrize(
    ("avx512", "avx512_bf16", "amx", "cores", "text"),
    [
        (True, True, True, 2, "Xeon, 2 cores, AVX-512, AMX"),
        (True, True, False, 2, "Xeon, 2 cores, AVX-512, BF16"),
        (True, False, False, 4, "Xeon, 4 cores, AVX-512"),
        (False, False, False, 1, "Xeon, 1 core"),
    ],
)
def test_processor_is_described_with_what_makes_products_fast(
    monkeypatch: pytest.MonkeyPatch, avx512: bool, avx512_bf16: bool, amx: bool, cores: int, text: str
) -> None:
    monkeypatch.setattr(hardware, "processor_name", lambda: "Xeon")
    monkeypatch.setattr(hardware, "has_avx512", lambda: avx512)
    pretend_processor(monkeypatch, amx=amx, avx512_bf16=avx512_bf16)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert describe_processor() == text


def test_memory_in_use_grows_with_what_is_taken() -> None:
    before = resident_memory()
    # A mapping of its own: the heap may hold freed memory already, and give that.
    with mmap.mmap(-1, 64 * MB) as taken:
        taken.write(bytes(64 * MB))
        assert 64 * MB * 0.9 < resident_memory() - before < 64 * MB * 2


def test_memory_in_use_is_less_than_the_machine_has() -> None:
    size = memory_size()
    assert size is not None
    assert 10 * MB < resident_memory() < size


def test_memory_in_use_is_known_where_the_system_keeps_no_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = resident_memory()
    monkeypatch.setattr(hardware, "OWN_MEMORY", tmp_path / "none")
    assert resident_memory() >= 0.9 * now  # the most that was ever held


def test_memory_use_is_told_in_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "resident_memory", lambda: 1_234_600_000)
    assert describe_memory_use(CPU) == "1,235 MB"
