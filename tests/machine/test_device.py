"""The machine: device, precision, threads, and random numbers that can be repeated."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mt_cli.config.schema import PrecisionChoice
from mt_cli.errors import ResourceError
from mt_cli.machine.device import best_precision, choose_runtime, describe_checkout, set_up_process

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


def test_the_gpu_of_an_apple_computer_is_taken_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_runtime().device.type == "cpu"
    chosen = choose_runtime(device="mps")
    assert (chosen.device.type, chosen.precision) == ("mps", "fp32")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ResourceError, match="--device cpu"):
        choose_runtime(device="mps")


def test_threads_are_no_more_than_a_container_may_use_unless_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mt_cli.machine.device.usable_cores", lambda: 1)
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    set_up_process()
    assert torch.get_num_threads() == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    set_up_process()
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("amx", "most", "precision", "expected"),
    [
        (True, "AVX512_CORE_VNNI", "auto", "fp32"),
        (True, "avx512_core_amx", "auto", "bf16"),
        (True, "", "auto", "bf16"),
        (False, "", "auto", "fp32"),
        (True, "", "fp32", "fp32"),
        (False, "", "bf16", "bf16"),
    ],
)
def test_auto_precision_is_bf16_where_the_cpu_is_fast_in_it_and_onednn_may_use_it(
    monkeypatch: pytest.MonkeyPatch,
    amx: bool,
    most: str,
    precision: PrecisionChoice,
    expected: str,
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: amx)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", most)
    assert choose_runtime(device="cpu", precision=precision).precision == expected


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((8, 0), "bf16"), ((7, 0), "fp16"), ((6, 0), "fp32")],
    ids=["A100", "V100", "P100"],
)
def test_auto_suits_each_kind_of_gpu(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: str
) -> None:
    # What PyTorch answers: bf16 in hardware from 8.0 on.
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: capability >= (8, 0)
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert best_precision(torch.device("cuda")) == expected


def test_float32_is_computed_in_full() -> None:
    torch.set_float32_matmul_precision("high")  # TensorFloat-32, where there is any
    set_up_process()
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    ("local_rank", "found", "visible", "expected"),
    [("1", 2, "4,5", "cuda:1"), ("1", 1, "5", "cuda:0"), ("0", 1, "", "cuda:0")],
)
def test_each_process_of_a_launcher_takes_its_own_gpu(
    monkeypatch: pytest.MonkeyPatch, local_rank: str, found: int, visible: str, expected: str
) -> None:
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    assert str(choose_runtime(device="cuda", precision="fp32").device) == expected


@pytest.mark.parametrize(
    ("local_rank", "named"), [("1", "process 2"), ("first", "LOCAL_RANK is 'first'")]
)
def test_a_process_without_a_gpu_of_its_own_is_refused(
    monkeypatch: pytest.MonkeyPatch, local_rank: str, named: str
) -> None:
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ResourceError, match=named):
        choose_runtime(device="cuda")


# The commit in env.json: that of the package's own repository, and of no other


@pytest.mark.parametrize(
    ("changed", "is_modified"),
    [("notes.txt", False), ("package/__init__.py", True), ("package/new.py", True)],
)
def test_commit_of_the_package_is_named_and_whether_it_was_changed(
    tmp_path: Path, changed: str, is_modified: bool
) -> None:
    def git(*args: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *args]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    for name in ("package", "environment/package"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("one = 1\n")
    git("init", "--quiet")
    git("add", "package")
    git("commit", "--quiet", "--message", "one")
    (tmp_path / changed).write_text("two = 2\n")
    expected = {"commit": git("rev-parse", "HEAD"), "commit_modified": is_modified}
    assert describe_checkout(tmp_path / "package") == expected
    # Installed inside of another repository.
    assert describe_checkout(tmp_path / "environment" / "package") == {}


def test_package_without_git_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_checkout() == {}
