"""Checkpoints: what was saved comes back, and what was damaged is refused by name."""

import errno
import os
from pathlib import Path
from typing import Never

import pytest
import safetensors.torch
import torch
from damage import flip_a_bit, rehash
from tiny import BACKENDS, CPU, random_pairs, randomised, split_of, tiny_model
from torch import Tensor

from mt_cli.config.schema import TrainingConfig
from mt_cli.errors import DataError, ResourceError
from mt_cli.model.model import TranslationModel
from mt_cli.runs.checkpoint import (
    CheckpointState,
    read_state,
    read_training_tensors,
    read_weights,
    save_checkpoint,
)
from mt_cli.training.trainer import Trainer

STATE = CheckpointState(step=7)
TENSORS = {"random:cpu": torch.arange(9, dtype=torch.uint8), "x:step": torch.tensor(3.0)}
FILES = ["manifest.json", "model.safetensors", "state.json", "state.safetensors"]
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


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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


@pytest.mark.parametrize(("tie", "matrices"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tied_weights_are_saved_once(tmp_path: Path, tie: str, matrices: int) -> None:
    save(tmp_path / "x", tiny_model(tie=tie))
    saved = safetensors.torch.load_file(tmp_path / "x" / "model.safetensors")
    assert len([name for name in saved if "embedding" in name or "output" in name]) == matrices


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trainers_tensors_come_back_exactly(tmp_path: Path, backend: str) -> None:
    model = tiny_model(backend, dropout=0.1, tie="all")
    config = TrainingConfig(max_epochs=1)
    trainer = Trainer(model, split_of(random_pairs(9)), config, runtime=CPU, seed=1)
    list(trainer.run())
    save(tmp_path / "x", model, tensors=trainer.state_dict())
    found = read_training_tensors(tmp_path / "x", SHAPES)
    torch.testing.assert_close(found, trainer.state_dict(), rtol=0, atol=0)


READERS = {
    "model.safetensors": lambda folder: load(folder, tiny_model()),
    "state.safetensors": lambda folder: read_training_tensors(folder, SHAPES),
    "state.json": read_state,
}
every_file = pytest.mark.parametrize("name", READERS)


@every_file
def test_a_flipped_byte_is_found_and_the_file_named(folder: Path, name: str) -> None:
    flip_a_bit(folder / name)
    with pytest.raises(DataError, match=f"step-00000007/{name}: "):
        READERS[name](folder)


@pytest.mark.parametrize("name", ["state.json"])
@pytest.mark.parametrize("manifest", ["{}", '{"sha256": []}', '{"sha256": {}}'])
def test_a_manifest_without_hashes_is_refused(folder: Path, name: str, manifest: str) -> None:
    (folder / "manifest.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(DataError, match=rf"manifest\.json: .*{name}"):
        READERS[name](folder)


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000


def with_header(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04pickle",
        b"\xff" * 7 + b"\x7f{}",
        with_header(b"[]"),
        with_header(DEEP),
        with_header(b'{"x": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 8]}}'),
    ],
    ids=["pickle", "header without end", "list", "too deep", "shape beyond the end"],
)
def test_bytes_that_are_no_safetensors_are_refused(folder: Path, content: bytes) -> None:
    rehash(folder, "model.safetensors", content)
    with pytest.raises(DataError, match=r"model\.safetensors: not a safetensors file"):
        load(folder, tiny_model())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    model = tiny_model()
    next(model.parameters()).data[0] = value
    with pytest.raises(DataError, match=r"model\.safetensors"):
        load(save(tmp_path / "x", model), tiny_model())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"d_ff": 24}, r"linear1\.(weight|bias) .*16.*24"),
        ({"output_bias": True}, r"output\.bias .*11"),
        ({"tie": "all"}, r"(tgt_embedding|output)\.weight "),
        ({"encoder_layers": 1}, r"backend\.encoder\.layers\.1\."),
    ],
    ids=["wider", "bias", "tied", "fewer layers"],
)
def test_weights_of_another_model_are_refused_by_name(
    folder: Path, options: dict[str, object], named: str
) -> None:
    with pytest.raises(DataError, match=named):
        load(folder, tiny_model(options=options))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_existing_checkpoint_is_replaced_whole(folder: Path) -> None:
    (folder / "stray").write_bytes(b"x")
    model = randomised(tiny_model(), seed=5)
    save(folder, model, tensors={"y": torch.ones(2)})
    loaded = tiny_model()
    load(folder, loaded)
    torch.testing.assert_close(parameters(loaded), parameters(model), rtol=0, atol=0)
    assert read_training_tensors(folder, SHAPES).keys() == {"y"}
    assert names_in(folder) == FILES


@pytest.mark.parametrize(
    ("owner", "name"),
    [(os, "fsync"), (Path, "mkdir"), (os, "replace")],
    ids=["write", "make a folder", "name a file"],
)
def test_a_failed_save_leaves_the_old_checkpoint_intact(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    def full_disk(*_: object, **__: object) -> Never:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = contents(folder.parent)
    monkeypatch.setattr(owner, name, full_disk)
    with pytest.raises(ResourceError, match="no space left"):
        save(folder, randomised(tiny_model(), seed=5))
    assert contents(folder.parent) == before
