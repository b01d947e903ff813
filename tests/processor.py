"""Another processor than the one that the tests run on, as far as PyTorch can tell."""

import pytest
import torch


def pretend_processor(
    monkeypatch: pytest.MonkeyPatch, *, amx: bool = False, avx512_bf16: bool = False
) -> None:
    """Have PyTorch see a processor that has just these ways to multiply bf16."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
