"""Checkpoints: weights and training state, written as a whole and checked before use.

Knows tensors by name; never a model's structure or a run's history.

    step-00001200/model.safetensors   weights, tied ones once
                  state.safetensors   what resuming needs beside them: the optimiser's state
                  state.json          progress and score
                  manifest.json       sha256 of the three
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from torch import Tensor, nn

from mt_cli.artefacts.files import (
    built_beside,
    check_hashes,
    read_json,
    sha256_file,
    write_atomically,
    write_json,
)
from mt_cli.errors import DataError

MODEL, STATE, PROGRESS, MANIFEST = "model.safetensors", "state.safetensors", "state.json", "manifest.json"


@dataclass(frozen=True)
class CheckpointState:
    """Where training stood."""

    step: int
    epoch: int
    update_of_epoch: int
    best_score: float | None = None
    """Score of the best checkpoint so far; higher is better."""
    best_step: int | None = None
    validations_without_gain: int = 0
    elapsed_s: float = 0.0
    """Seconds of training, earlier sessions included."""


def checkpoint_name(step: int) -> str:
    """Folder name of the checkpoint after update `step`."""
    return f"step-{step:08d}"


def save_checkpoint(
    folder: Path, model: nn.Module, *, tensors: Mapping[str, Tensor], state: CheckpointState
) -> None:
    """Write a checkpoint to `folder`, which appears under its name only when complete.

    Raises:
        ResourceError: it cannot be written; nothing that was there before is lost.
    """
    with built_beside(folder) as partial:
        write_atomically(partial / MODEL, safetensors.torch.save(_on_cpu(dict(model.named_parameters()))))
        write_atomically(partial / STATE, safetensors.torch.save(_on_cpu(tensors)))
        write_json(partial / PROGRESS, asdict(state))
        hashes = {name: sha256_file(partial / name) for name in (MODEL, STATE, PROGRESS)}
        write_json(partial / MANIFEST, {"sha256": hashes})


def load_weights(folder: Path, model: nn.Module) -> None:
    """Fill `model` with the checkpoint's weights.

    Raises:
        DataError: a file is missing or altered, or belongs to another model.
    """
    checked_hashes(folder, names=[MODEL])
    tensors = _read_tensors(folder / MODEL)
    parameters = dict(model.named_parameters())
    for name in sorted(parameters.keys() | tensors.keys()):
        found = tuple(tensors[name].shape) if name in tensors else "nothing"
        expected = tuple(parameters[name].shape) if name in parameters else "nothing"
        if found != expected:
            raise DataError(
                f"{folder / MODEL}: not the weights of this model: {name} is {found}, expected {expected}"
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def load_training_tensors(folder: Path) -> dict[str, Tensor]:
    """What resuming needs from the checkpoint besides the weights."""
    checked_hashes(folder, names=[STATE])
    return _read_tensors(folder / STATE)


def load_state(folder: Path) -> CheckpointState:
    """Where training stood when the checkpoint was written."""
    checked_hashes(folder, names=[PROGRESS])
    try:
        return TypeAdapter(CheckpointState).validate_python(read_json(folder / PROGRESS))
    except ValidationError as error:
        raise DataError(
            f"{folder / PROGRESS}: not a training state; train anew, or restore it from a copy"
        ) from error


def checked_hashes(folder: Path, *, names: Sequence[str]) -> dict[str, str]:
    """Check the checkpoint's files `names` and return their sha256.

    Raises:
        DataError: one is missing or altered.
    """
    if not (folder / MANIFEST).is_file():
        raise DataError(f"{folder}: no complete checkpoint ({MANIFEST} is missing)")
    listed = read_json(folder / MANIFEST).get("sha256")
    hashes = listed if isinstance(listed, dict) else {}
    for name in names:
        if not isinstance(hashes.get(name), str):
            raise DataError(f"{folder / MANIFEST}: lists no sha256 of {name}; the file is damaged")
    found = {name: str(hashes[name]) for name in names}
    check_hashes(folder, found)
    return found


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(path.read_bytes())
    except SafetensorError as error:
        raise DataError(f"{path}: not a safetensors file: {error}") from error


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
