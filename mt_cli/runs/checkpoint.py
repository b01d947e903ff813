"""Checkpoints: weights and training state, written as a whole and checked before use.

step-00001200/model.safetensors   weights, tied ones once
              state.safetensors   what resuming needs beside them: the optimizer's state
              state.json          progress and score
              manifest.json       sha256 of the three
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor

from mt_cli.errors import DataError
from mt_cli.machine.files import (
    MANIFEST,
    built_beside,
    check_hashes,
    damage_named,
    parsed,
    read_file,
    read_json,
    sha256_of_files,
    write_atomically,
    write_json,
)

MODEL, STATE, PROGRESS = "model.safetensors", "state.safetensors", "state.json"
MAX_NUMBERS = 4
"""In a checkpoint's file, for each parameter of its model: an optimizer keeps two."""
MAX_BYTES_BESIDE = 1 << 26
"""Of what else a file may hold: its header, sums of the meter."""
Shapes = Mapping[str, tuple[int, ...]]
Count = Annotated[int, Field(ge=0, lt=1 << 53, strict=True)]


@dataclass(frozen=True)
class CheckpointState:
    """Where training stood."""

    step: Count
    best_score: float | None = None
    """Score of the best checkpoint so far; higher is better."""
    best_nll: float | None = None
    """Its loss on val, by which equal scores are told apart."""
    best_step: Count | None = None
    validations_without_gain: Count = 0
    elapsed_s: Annotated[float, Field(ge=0, strict=True)] = 0.0
    """Seconds of training, earlier sessions included."""


def checkpoint_name(step: int) -> str:
    """Folder name of the checkpoint after update `step`."""
    return f"step-{step:08d}"


def save_checkpoint(
    folder: Path,
    weights: Mapping[str, Tensor],
    *,
    state: CheckpointState,
    tensors: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint to `folder`, which appears under its name only when complete.

    `tensors` are what resuming needs beside the weights; without them, training cannot go on from
    it.

    Raises:
        OSError: it cannot be written; nothing that was there before is lost.
    """
    with built_beside(folder) as partial:
        if tensors is not None:
            _write_tensors(partial / STATE, tensors)
        _write_tensors(partial / MODEL, weights)
        write_json(partial / PROGRESS, asdict(state))
        write_json(partial / MANIFEST, {"sha256": sha256_of_files(partial)})


def read_weights(folder: Path, shapes: Shapes) -> dict[str, Tensor]:
    """The checkpoint's weights in fp32, by parameter name; the model has parameters of `shapes`.

    Raises:
        DataError: a file is missing or altered, belongs to another model, or holds NaN or infinity.
    """
    weights = _read_tensors(folder, MODEL, shapes)
    for name in sorted(shapes.keys() | weights.keys()):
        found = tuple(weights[name].shape) if name in weights else "nothing"
        expected = shapes.get(name, "nothing")
        if found != expected:
            raise DataError(f"{folder / MODEL}: {name} is {found}, the model has {expected}")
    return {name: tensor.float() for name, tensor in weights.items()}


def read_training_tensors(folder: Path, shapes: Shapes) -> dict[str, Tensor]:
    """What resuming needs besides the weights, of a model whose parameters have `shapes`.

    Raises:
        DataError: it is altered or missing; a run that was exported does not have it.
    """
    if STATE not in _listed_hashes(folder) and not (folder / STATE).exists():
        raise DataError(f"{folder}: exported, without what training needs to go on")
    return _read_tensors(folder, STATE, shapes)


def read_state(folder: Path) -> CheckpointState:
    """Where training stood when the checkpoint was written.

    Raises:
        DataError: it is altered or missing.
    """
    path = folder / PROGRESS
    _check(folder, PROGRESS)
    return parsed(CheckpointState, read_file(path), path)


def weights_sha256(folder: Path) -> str:
    """sha256 of the checkpoint's weights; the file is checked.

    Raises:
        DataError: it is missing or altered.
    """
    return _check(folder, MODEL)


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, safetensors.torch.save(on_cpu))


def _read_tensors(folder: Path, name: str, shapes: Shapes) -> dict[str, Tensor]:
    """The tensors in a checkpoint's file, which may be as large as the model's `shapes` allow."""
    path = folder / name
    num_parameters = sum(map(math.prod, shapes.values()))
    _check(folder, name)
    data = read_file(path, max_bytes=MAX_BYTES_BESIDE + 4 * MAX_NUMBERS * num_parameters)
    with damage_named(path, "safetensors file", SafetensorError):
        tensors = safetensors.torch.load(data)
    for each, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{path}: {each} holds NaN or infinity; use another checkpoint")
    return tensors


def _check(folder: Path, name: str) -> str:
    """sha256 of a checkpoint's file, which is the one that the manifest lists."""
    digest = _listed_hashes(folder).get(name)
    if not isinstance(digest, str):
        raise DataError(f"{folder / MANIFEST}: lists no sha256 of {name}; the file is damaged")
    check_hashes(folder, {name: digest})
    return digest


def _listed_hashes(folder: Path) -> dict[str, object]:
    """What the manifest lists; nothing if it is damaged."""
    listed = read_json(folder / MANIFEST).get("sha256")
    return listed if isinstance(listed, dict) else {}
