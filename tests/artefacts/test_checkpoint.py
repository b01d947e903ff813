"""Checkpoints: what was saved comes back, and what was damaged is refused by name."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Never

import pytest
import safetensors.torch
import torch
from damage import IMPOSTORS, accepted_flips, rehash, replace_by, without_seal
from tiny import BACKENDS, CPU, random_pairs, randomised, split_of, tiny_model
from torch import Tensor

from mt_cli.artefacts import folders
from mt_cli.artefacts.checkpoint import (
    CheckpointState,
    checked_hashes,
    checkpoint_name,
    load_state,
    load_training_tensors,
    load_weights,
    save_checkpoint,
    shapes_of,
)
from mt_cli.artefacts.leftovers import partial_name
from mt_cli.config import TrainingConfig
from mt_cli.errors import DataError, ResourceError
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.trainer import Trainer

STATE = CheckpointState(
    step=7,
    epoch=2,
    update_of_epoch=3,
    best_score=38.5,
    best_step=4,
    validations_without_gain=1,
    elapsed_s=12.25,
)
TENSORS = {"random:cpu": torch.arange(9, dtype=torch.uint8), "x:step": torch.tensor(3.0)}
FILES = ["manifest.json", "model.safetensors", "state.json", "state.safetensors"]
SHAPES = shapes_of(tiny_model())


def save(
    folder: Path, model: TranslationModel | None = None, *, tensors: dict[str, Tensor] = TENSORS
) -> Path:
    model = randomised(tiny_model()) if model is None else model
    save_checkpoint(folder, model, tensors=tensors, state=STATE)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "step-00000007")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def parameters(model: TranslationModel) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


# Round trips


@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
@pytest.mark.parametrize(("giver", "taker"), [("torch", "scratch"), ("scratch", "torch")])
def test_weights_come_back_on_the_other_backend(tmp_path: Path, giver: str, taker: str, tie: str) -> None:
    model = randomised(tiny_model(giver, tie=tie))
    loaded = tiny_model(taker, tie=tie)
    load_weights(save(tmp_path / "x", model), loaded)
    torch.testing.assert_close(parameters(loaded), parameters(model), rtol=0, atol=0)


@pytest.mark.parametrize(("tie", "matrices"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tied_weights_are_saved_once(tmp_path: Path, tie: str, matrices: int) -> None:
    save(tmp_path / "x", tiny_model(tie=tie))
    saved = safetensors.torch.load_file(tmp_path / "x" / "model.safetensors")
    assert len([name for name in saved if "embedding" in name or "output" in name]) == matrices


def test_tied_weights_stay_tied_when_loaded(tmp_path: Path) -> None:
    loaded = tiny_model(tie="all")
    load_weights(save(tmp_path / "x", randomised(tiny_model(tie="all"))), loaded)
    assert loaded.output.weight is loaded.src_embedding.weight


def test_training_tensors_come_back(folder: Path) -> None:
    torch.testing.assert_close(load_training_tensors(folder, SHAPES), TENSORS, rtol=0, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trainers_tensors_come_back_exactly(tmp_path: Path, backend: str) -> None:
    model = tiny_model(backend, dropout=0.1, tie="all")
    trainer = Trainer(model, split_of(random_pairs(9)), TrainingConfig(max_epochs=1), runtime=CPU, seed=1)
    list(trainer.run())
    save(tmp_path / "x", model, tensors=trainer.tensors())
    torch.testing.assert_close(
        load_training_tensors(tmp_path / "x", SHAPES), trainer.tensors(), rtol=0, atol=0
    )


def test_state_comes_back(folder: Path) -> None:
    assert load_state(folder) == STATE


def test_state_before_any_validation_comes_back(tmp_path: Path) -> None:
    state = CheckpointState(step=1, epoch=0, update_of_epoch=1)
    save_checkpoint(tmp_path / "x", tiny_model(), tensors={}, state=state)
    assert load_state(tmp_path / "x") == state


def test_checkpoint_holds_four_files(folder: Path) -> None:
    assert names_in(folder) == FILES


def test_names_sort_by_step() -> None:
    assert checkpoint_name(1200) == "step-00001200"
    assert checkpoint_name(999) < checkpoint_name(1000)


# Damage

READERS = {
    "model.safetensors": lambda folder: load_weights(folder, tiny_model()),
    "state.safetensors": lambda folder: load_training_tensors(folder, SHAPES),
    "state.json": load_state,
}
HUGE = 1 << 40
"""Bytes of a file with holes, which nobody has the time to read."""
every_file = pytest.mark.parametrize("name", READERS)


@every_file
def test_a_flipped_byte_is_found_and_the_file_named(folder: Path, name: str) -> None:
    flip_byte(folder / name)
    with pytest.raises(DataError, match=rf"step-00000007/{name}: altered or damaged: sha256"):
        READERS[name](folder)


@every_file
def test_a_truncated_file_is_found_and_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"step-00000007/{name}: altered or damaged: sha256"):
        READERS[name](folder)


@every_file
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(DataError, match=rf"step-00000007/{name}: missing"):
        READERS[name](folder)


@every_file
def test_a_folder_without_manifest_is_no_checkpoint(folder: Path, name: str) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"no complete checkpoint \(manifest.json is missing\)"):
        READERS[name](folder)


@every_file
@pytest.mark.parametrize("manifest", ["{}", '{"sha256": []}', '{"sha256": {}}'])
def test_a_manifest_without_hashes_is_refused(folder: Path, name: str, manifest: str) -> None:
    (folder / "manifest.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(DataError, match=rf"manifest\.json: lists no sha256 of {name}"):
        READERS[name](folder)


def test_a_manifest_without_a_seal_is_read_with_a_warning_that_names_the_run(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = shutil.copytree(folder, tmp_path / "runs" / "tiny" / "checkpoints" / folder.name)
    without_seal(checkpoint / "manifest.json")
    checked_hashes(checkpoint, SHAPES, names=["state.json"])
    (message,) = caplog.messages
    assert message.endswith(f"to check and seal it: mt-cli inspect {tmp_path / 'runs' / 'tiny'} --seal")


def test_bytes_that_are_no_safetensors_are_refused(folder: Path) -> None:
    rehash(folder, "model.safetensors", b"\x80\x04pickle")
    with pytest.raises(DataError, match=r"model\.safetensors: not a safetensors file"):
        load_weights(folder, tiny_model())


@pytest.mark.parametrize("data", [b"{}", b'{"step": "x"}'])
def test_a_state_without_its_fields_is_refused(folder: Path, data: bytes) -> None:
    rehash(folder, "state.json", data)
    with pytest.raises(DataError, match=r"state\.json: not a training state"):
        load_state(folder)


# Weights of another model


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"d_ff": 24}, r"linear1\.(weight|bias) is \(16.*\), expected \(24.*\)"),
        ({"output_bias": True}, r"output\.bias is nothing, expected \(11,\)"),
        ({"tie": "all"}, r"(tgt_embedding|output)\.weight is \(11, 8\), expected nothing"),
        ({"encoder_layers": 1}, r"backend\.encoder\.layers\.1\..* is \(.*\), expected nothing"),
    ],
    ids=["wider", "bias", "tied", "fewer layers"],
)
def test_weights_of_another_model_are_refused_by_name(
    folder: Path, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(DataError, match=rf"not the weights of this model: .*{complaint}"):
        load_weights(folder, tiny_model(options=options))


def test_weights_of_another_vocabulary_are_refused_by_name(folder: Path) -> None:
    with pytest.raises(DataError, match=r"output\.weight is \(11, 8\), expected \(12, 8\)"):
        load_weights(folder, tiny_model(tgt_vocab_size=12))


def test_refused_weights_leave_the_model_as_it_was(folder: Path) -> None:
    model = tiny_model(tgt_vocab_size=12)
    before = parameters(model)
    with pytest.raises(DataError):
        load_weights(folder, model)
    torch.testing.assert_close(parameters(model), before, rtol=0, atol=0)


# Replacing, and failing to


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_existing_checkpoint_is_replaced_whole(folder: Path) -> None:
    (folder / "stray").write_bytes(b"x")
    model = randomised(tiny_model(), seed=5)
    save(folder, model, tensors={"y": torch.ones(2)})
    loaded = tiny_model()
    load_weights(folder, loaded)
    torch.testing.assert_close(parameters(loaded), parameters(model), rtol=0, atol=0)
    assert load_training_tensors(folder, SHAPES).keys() == {"y"}
    assert names_in(folder) == FILES


def test_nothing_is_left_beside_a_checkpoint(folder: Path) -> None:
    save(folder)
    assert names_in(folder.parent) == ["step-00000007"]


def test_leftovers_of_a_crash_do_not_matter(tmp_path: Path) -> None:
    leftover = tmp_path / partial_name("x")
    leftover.mkdir()
    (leftover / "stray").write_bytes(b"x")
    assert names_in(save(tmp_path / "x")) == FILES
    assert names_in(tmp_path) == ["x"]


def full_disk() -> Never:
    raise OSError(errno.ENOSPC, "No space left on device")


every_failure = pytest.mark.parametrize(
    ("owner", "name"),
    [(os, "fsync"), (Path, "mkdir"), (os, "replace"), (Path, "rename")],
    ids=["write", "make a folder", "name a file", "name the folder"],
)


@pytest.fixture
def no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system on which two folders cannot change places in one step."""
    monkeypatch.setattr(folders, "exchange", lambda one, other: False)


@every_failure
def test_a_failed_save_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    monkeypatch.setattr(owner, name, lambda *args, **options: full_disk())
    with pytest.raises(ResourceError, match=r"x.*: cannot be written: no space left on the disk"):
        save(tmp_path / "x")
    assert names_in(tmp_path) == []


@every_failure
@pytest.mark.usefixtures("no_exchange")
def test_a_failed_save_leaves_the_old_checkpoint_intact(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    before = contents(folder.parent)
    monkeypatch.setattr(owner, name, lambda *args, **options: full_disk())
    with pytest.raises(ResourceError, match="no space left on the disk"):
        save(folder, randomised(tiny_model(), seed=5))
    assert contents(folder.parent) == before


@pytest.mark.usefixtures("no_exchange")
def test_a_failed_swap_puts_the_old_checkpoint_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fail_for_the_new(path: Path, target: Path) -> Path:
        return full_disk() if path.suffix == ".partial" else rename(path, target)

    before = contents(folder.parent)
    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(ResourceError, match="no space left on the disk"):
        save(folder, randomised(tiny_model(), seed=5))
    assert contents(folder.parent) == before


def test_a_failed_removal_of_the_old_checkpoint_never_leaves_half_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_half(path: Path, *, ignore_errors: bool = False) -> None:
        for entry in sorted(Path(path).iterdir())[:2] if Path(path).exists() else []:
            entry.unlink()
        if not ignore_errors:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(shutil, "rmtree", remove_half)
    save(folder, randomised(tiny_model(), seed=5))
    load_weights(folder, tiny_model())
    assert load_state(folder) == STATE


@pytest.mark.parametrize(
    "change",
    [
        {"step": -5},
        {"epoch": -1},
        {"update_of_epoch": 1.5},
        {"step": "7"},
        {"step": True},
        {"step": 10**18},
        {"best_step": 10**18},
        {"elapsed_s": -1.0},
        {"validations_without_gain": None},
    ],
    ids=str,
)
def test_a_state_that_no_training_reaches_is_refused(folder: Path, change: dict[str, object]) -> None:
    state = json.loads((folder / "state.json").read_bytes())
    rehash(folder, "state.json", json.dumps({**state, **change}).encode())
    with pytest.raises(DataError, match=r"state\.json: not a training state"):
        load_state(folder)


@every_file
@pytest.mark.parametrize("kind", IMPOSTORS)
def test_only_real_files_are_read(folder: Path, name: str, kind: str) -> None:
    replace_by(kind, folder / name)
    with pytest.raises(DataError, match=rf"{name}: (a link|not a regular file)"):
        READERS[name](folder)


def test_no_flipped_bit_of_the_manifest_goes_unnoticed(folder: Path) -> None:
    state = {"step": 7, "epoch": 2, "update_of_epoch": 3}
    rehash(folder, "state.json", json.dumps(state).encode())
    path = folder / "manifest.json"
    assert accepted_flips(path, lambda: (load_state(folder), json.loads(path.read_bytes()))) == []


# Out of proportion


@every_file
def test_file_without_end_is_refused_unread(folder: Path, name: str) -> None:
    with (folder / name).open("r+b") as file:
        file.truncate(HUGE)
    with pytest.raises(DataError, match=rf"{name}: more than [0-9,]+ bytes, which no such file has"):
        READERS[name](folder)


def test_hash_of_a_file_without_end_is_not_looked_for(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(HUGE)
    with pytest.raises(DataError, match=r"model\.safetensors: more than"):
        checked_hashes(folder, SHAPES, names=["model.safetensors"])
