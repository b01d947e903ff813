"""Checkpoints: what was saved comes back, and what was damaged is refused by name."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from damage import flip_a_bit, rehash
from tiny import randomised, tiny_model
from torch import Tensor

from mt_cli.errors import DataError
from mt_cli.model.model import TranslationModel
from mt_cli.runs.checkpoint import CheckpointState, read_state, read_weights, save_checkpoint

STATE = CheckpointState(step=7)
TENSORS = {"random:cpu": torch.arange(9, dtype=torch.uint8), "x:step": torch.tensor(3.0)}
SHAPES = {name: tuple(each.shape) for name, each in tiny_model().named_parameters()}


def save(
    folder: Path, model: TranslationModel | None = None, *, tensors: dict[str, Tensor] = TENSORS
) -> Path:
    model = randomised(tiny_model()) if model is None else model
    save_checkpoint(folder, parameters(model), tensors=tensors, state=STATE)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "step-00000007")


def load(folder: Path, model: TranslationModel) -> None:
    shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}
    model.load_state_dict(read_weights(folder, shapes), strict=False)


def parameters(model: TranslationModel) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
@pytest.mark.parametrize(("giver", "taker"), [("torch", "scratch"), ("scratch", "torch")])
def test_weights_come_back_on_the_other_backend(
    tmp_path: Path, giver: str, taker: str, tie: str
) -> None:
    model = randomised(tiny_model(giver, tie=tie))
    loaded = tiny_model(taker, tie=tie)
    load(save(tmp_path / "x", model), loaded)
    torch.testing.assert_close(parameters(loaded), parameters(model), rtol=0, atol=0)
    saved = safetensors.torch.load_file(tmp_path / "x" / "model.safetensors")
    matrices = [name for name in saved if "embedding" in name or "output" in name]
    assert len(matrices) == {"none": 3, "decoder": 2, "all": 1}[tie]  # tied ones once


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_16_bits_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    halves = {name: each.to(dtype) for name, each in parameters(randomised(tiny_model())).items()}
    folder = tmp_path / "step-00000007"
    save_checkpoint(folder, halves, state=STATE)
    expected = {name: each.float() for name, each in halves.items()}
    torch.testing.assert_close(read_weights(folder, SHAPES), expected, rtol=0, atol=0)


def test_a_flipped_byte_is_found_and_the_file_named(folder: Path) -> None:
    flip_a_bit(folder / "state.json")
    with pytest.raises(DataError, match=r"step-00000007/state\.json: "):
        read_state(folder)


def test_a_manifest_without_hashes_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"sha256": []}')
    with pytest.raises(DataError, match=r"manifest\.json: .*state\.json"):
        read_state(folder)


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"x": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 8]}}',
        b"\x80\x04pickle",
    ],
    ids=["too deep", "shape beyond the end", "pickle"],
)
def test_bytes_that_are_no_safetensors_are_refused(folder: Path, header: bytes) -> None:
    rehash(folder, "model.safetensors", len(header).to_bytes(8, "little") + header)
    with pytest.raises(DataError, match=r"model\.safetensors: .*invalid safetensors file"):
        load(folder, tiny_model())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"d_ff": 24}, r"linear1\.(weight|bias) .*16.*24"),
        ({"output_bias": True}, r"output\.bias .*11"),
        ({"encoder_layers": 1}, r"backend\.encoder\.layers\.1\."),
    ],
    ids=["wider", "bias", "fewer layers"],
)
def test_weights_of_another_model_are_refused_by_name(
    folder: Path, options: dict[str, object], named: str
) -> None:
    with pytest.raises(DataError, match=named):
        load(folder, tiny_model(options=options))


def test_a_failed_save_leaves_the_old_checkpoint_intact(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    full_disk = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full_disk))
    with pytest.raises(OSError, match="No space left"):
        save(folder, randomised(tiny_model(), seed=5))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert list(folder.parent.iterdir()) == [folder]
