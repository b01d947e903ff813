"""The machine: device, precision, threads, and random numbers that can be repeated."""

import errno
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import get_args

import pytest
import torch
from processor import pretend_processor

from mt_cli.config.schema import Device
from mt_cli.decoding import search
from mt_cli.errors import ResourceError
from mt_cli.machine.device import best_precision, choose_runtime, set_up_process
from mt_cli.machine.process import MEMORY, SHORTAGE_HINTS, THREADS, gpu_failure, shortage
from mt_cli.training import loss
from mt_cli.translation import scorer, searcher

CPU = torch.device("cpu")
TABLES = (
    loss.PIECE_LOGITS,
    loss.BLOCK_LOGITS,
    search.STEPS_BETWEEN_CHECKS,
    scorer.MAX_TOKENS,
    scorer.MAX_LOGITS,
    searcher.MAX_HYPS,
    searcher.MAX_SENTENCES,
    searcher.MAX_TOKENS,
)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_missing_gpu_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ResourceError, match="device='cpu'") as caught:
        choose_runtime(device="cuda")
    assert "--device cpu" in caught.value.with_flags()


def old_driver() -> bool:
    warnings.warn(
        "CUDA initialization: The NVIDIA driver on your system is too old (found version 12020). "
        "Please update your GPU driver. (Triggered internally at CUDAFunctions.cpp:109.)",
        stacklevel=2,
    )
    return False


def test_the_reason_why_a_gpu_cannot_be_used_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", old_driver)
    reason = r"the nvidia driver on your system is too old \(found version 12020\)[;)]"
    with pytest.raises(ResourceError, match=f"(?i){reason}"):
        choose_runtime(device="cuda")
    assert choose_runtime(device="auto").device == CPU
    assert re.search(f"(?i){reason}", caplog.text)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("architectures", "capability", "is_able"),
    [
        ("sm_75 sm_80 sm_90 sm_120 compute_120", (7, 0), False),
        ("sm_75 sm_80 sm_90 sm_120 compute_120", (6, 1), False),
        ("sm_75 sm_80 sm_90 sm_120 compute_120", (7, 5), True),
        ("sm_75 sm_80 sm_90 sm_120 compute_120", (8, 9), True),
        ("sm_80 sm_86 sm_90", (8, 0), True),
        ("sm_86 sm_90", (8, 0), False),
        ("sm_80 sm_90a", (10, 0), False),
        ("sm_80 compute_90", (10, 0), True),
        ("", (7, 0), True),
    ],
)
def test_a_gpu_that_pytorch_has_no_code_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    architectures: str,
    capability: tuple[int, int],
    is_able: bool,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", architectures.split)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    for device in ("auto", "cuda"):
        if is_able:
            assert choose_runtime(device=device, precision="fp32").device.type == "cuda"
        else:
            with pytest.raises(ResourceError, match="compute capability"):
                choose_runtime(device=device)


def test_a_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_runtime(precision="fp32").device.type == "cuda"
    assert choose_runtime(device="cpu", precision="fp32").device == CPU


def test_the_gpu_of_an_apple_computer_is_taken_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_runtime().device.type == "cpu"
    chosen = choose_runtime(device="mps")
    assert (chosen.device.type, chosen.precision) == ("mps", "fp32")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ResourceError):
        choose_runtime(device="mps")


@pytest.mark.parametrize("table", TABLES)
def test_each_device_has_its_numbers(table: Mapping[str, int]) -> None:
    assert {"auto", *table} == set(get_args(Device))


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
    ("most", "expected"),
    [("AVX512_CORE_VNNI", "fp32"), ("avx512_core_amx", "bf16"), ("ALL", "bf16"), ("", "bf16")],
)
def test_auto_precision_is_bf16_where_the_cpu_is_fast_in_it_and_onednn_may_use_it(
    monkeypatch: pytest.MonkeyPatch, most: str, expected: str
) -> None:
    pretend_processor(monkeypatch, amx=True, avx512_bf16=True)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", most)
    assert choose_runtime(device="cpu").precision == expected
    pretend_processor(monkeypatch)
    assert choose_runtime(device="cpu").precision == "fp32"


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((9, 0), "bf16"), ((8, 0), "bf16"), ((7, 5), "fp16"), ((7, 0), "fp16"), ((6, 0), "fp32")],
    ids=["H100", "A100", "T4", "V100", "P100"],
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


def test_precision_asked_for_is_not_second_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_processor(monkeypatch, amx=True)
    assert choose_runtime(device="cpu", precision="fp32").precision == "fp32"
    pretend_processor(monkeypatch, amx=False)
    assert choose_runtime(device="cpu", precision="bf16").precision == "bf16"


def test_float32_is_computed_in_full() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")  # TensorFloat-32, where there is any
        set_up_process()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("local_rank", "found", "visible", "expected"),
    [
        ("1", 2, "", "cuda:1"),
        ("1", 2, "4,5", "cuda:1"),
        ("1", 1, "5", "cuda:0"),
        ("0", 1, "", "cuda:0"),
    ],
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
    ("local_rank", "named"),
    [("1", "process 2"), ("first", "LOCAL_RANK is 'first'"), ("", "LOCAL_RANK is ''")],
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


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        (MemoryError(), MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), MEMORY),
        (RuntimeError("std::bad_alloc"), MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling"), MEMORY),
        (RuntimeError("could not create a primitive"), MEMORY),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), MEMORY),
        (RuntimeError("can't start new thread"), THREADS),
        (RuntimeError("Resource temporarily unavailable"), THREADS),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), THREADS),
        (RuntimeError("shapes differ"), None),
        (ValueError("out of memory"), None),
        (OSError(errno.ENOENT, "No such file or directory"), None),
    ],
    ids=str,
)
def test_shortage_is_known_by_what_is_said(error: Exception, lacking: str | None) -> None:
    assert shortage(error) == lacking
    assert lacking is None or lacking in SHORTAGE_HINTS


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (
            "CUDA error: no kernel image is available.\nSearch",
            "CUDA error: no kernel image is available",
        ),
        (
            "CUDA driver initialization failed, you might",
            "CUDA driver initialization failed, you might",
        ),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        ("No CUDA GPUs are available", "No CUDA GPUs are available"),
        ("shapes differ after a CUDA error", None),
    ],
)
def test_a_failing_gpu_is_known_by_what_is_said(said: str, failure: str | None) -> None:
    assert gpu_failure(torch.AcceleratorError(said)) == failure
    assert gpu_failure(RuntimeError(said)) == failure
    assert gpu_failure(ValueError(said)) is None
