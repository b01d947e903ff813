"""`doctor` finds what is broken: each test breaks one thing on purpose."""

import json

import pytest
import torch
from tiny import CPU, randomised, tiny_model
from torch import Tensor
from workspace import Workspace

from mt_cli.evaluation.doctor import examine
from mt_cli.machine.device import Runtime
from mt_cli.model import scratch_backend, torch_backend, translation_model
from mt_cli.model.translation_model import TranslationModel

BF16 = Runtime(torch.device("cpu"), "bf16")


def models() -> tuple[TranslationModel, TranslationModel]:
    ours, theirs = randomised(tiny_model("scratch")), tiny_model("torch")
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def failures(runtime: Runtime = CPU) -> list[str]:
    return [check.name for check in examine(*models(), runtime=runtime) if not check.passed]


@pytest.mark.parametrize("runtime", [CPU, BF16], ids=["fp32", "bf16"])
def test_a_sound_model_passes_every_check(runtime: Runtime) -> None:
    assert failures(runtime) == []


def everything_may_be_seen(length: int, *, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device)


def nothing_is_padding(ids: Tensor, *, pad_id: int) -> Tensor:
    return torch.ones_like(ids, dtype=torch.bool)


@pytest.mark.parametrize(
    ("module", "name"),
    [(scratch_backend, "scratch"), (torch_backend, "torch")],
    ids=["scratch", "torch"],
)
def test_a_missing_causal_mask_is_named(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    monkeypatch.setattr(module, "causal_mask", everything_may_be_seen)
    found = failures()
    assert f"no information from future tokens ({name})" in found
    assert "both backends give the same probabilities" in found


@pytest.mark.parametrize("name", ["scratch", "torch"])
def test_a_missing_padding_mask_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(translation_model, "padding_mask", nothing_is_padding)
    assert f"padding and the rest of the batch change nothing ({name})" in failures()


def test_doctor_prints_a_line_for_each_check(workspace: Workspace) -> None:
    outcome = workspace.call("doctor", str(workspace.run))
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == 9
    assert all(line.startswith(b"pass  ") for line in outcome.out.splitlines())


def test_a_failed_check_is_exit_code_six(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_backend, "causal_mask", everything_may_be_seen)
    outcome = workspace.call("doctor", str(workspace.run), "--json")
    assert outcome.code == 6
    assert "checks failed: no information from future tokens (scratch)" in outcome.err
    checks = json.loads(outcome.out)["checks"]
    assert [check["passed"] for check in checks].count(False) >= 2
