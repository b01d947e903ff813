"""Whole updates and decoding steps on the `meta` device, which has shapes and no values.

There, reading a value raises an error, and so does mixing in a tensor of the CPU. On a GPU, the first would
make the host wait, and the second would fail. So these tests guard the GPU path on machines without a GPU.
"""

import contextlib
from collections.abc import Callable

import pytest
import torch
from tiny import BACKENDS, random_pairs, split_of, tiny_model
from torch import Tensor

from mt_cli.config.schema import TrainingConfig
from mt_cli.machine.device import Runtime
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training import loss as linear_cross_entropy
from mt_cli.training.trainer import Trainer

META = Runtime(torch.device("meta"), "fp32")
PLAIN = TrainingConfig(max_epochs=1, tokens_per_batch=60, schedule="constant", warmup_steps=0)


@pytest.fixture(autouse=True)
def accept_meta_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linear_cross_entropy.PIECE_LOGITS, "meta", 1 << 20)
    monkeypatch.setitem(linear_cross_entropy.BLOCK_LOGITS, "meta", 1 << 18)
    # PyTorch's autocast does not know the device.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())


def update(model: TranslationModel, **options: object) -> Tensor:
    """The loss that a first update reports."""
    config = PLAIN.model_copy(update=options)
    trainer = Trainer(model.to("meta"), split_of(random_pairs(20)), config, runtime=META, seed=1)
    return next(trainer.run()).loss


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("r_drop", [0.0, 5.0], ids=["one-pass", "r-drop"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize(("accumulation", "clip_norm"), [(1, 0.0), (2, 1.0)], ids=["plain", "accumulated"])
def test_an_update_reads_no_value_and_leaves_nothing_on_the_cpu(
    backend: str, r_drop: float, optimizer: str, accumulation: int, clip_norm: float
) -> None:
    model = tiny_model(backend, dropout=0.1, attention_dropout=0.1, output_bias=True)
    options = {"r_drop": r_drop, "optimizer": optimizer, "accumulation": accumulation, "clip_norm": clip_norm}
    assert update(model, **options).is_meta


def read_a_value(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    output.sum().item()


def mix_in_a_cpu_tensor(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output + torch.ones(output.shape)


@pytest.mark.parametrize("plant", [read_a_value, mix_in_a_cpu_tensor], ids=["item", "cpu-tensor"])
def test_what_is_planted_in_an_update_is_found(plant: Callable[..., Tensor | None]) -> None:
    model = tiny_model(dropout=0.1)
    layer = next(module for module in model.modules() if isinstance(module, torch.nn.LayerNorm))
    layer.register_forward_hook(plant)
    with pytest.raises(RuntimeError, match="meta"):
        update(model)


def ids_on_meta(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.long, device="meta")


@torch.no_grad()
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("beams", [1, 3])
def test_decoding_steps_read_no_value_and_leave_nothing_on_the_cpu(backend: str, beams: int) -> None:
    model = tiny_model(backend).eval().to("meta")
    state = model.start(ids_on_meta(4, 7))
    first = model.step(ids_on_meta(4, 1), state)
    state.arrange(ids_on_meta(4, beams))
    later = [model.step(ids_on_meta(4, beams), state) for _ in range(9)]  # enough to need more room
    assert all(logits.is_meta for logits in (first, *later))
