"""Checkpoints: weights and training state, written atomically and verified before use.

step-00001200/model.safetensors   weights, tied ones once
              state.safetensors   the optimizer's state, needed to resume
              state.json          progress and score
              manifest.json       sha256 of the three
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError, deserialize

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
from mt_cli.model.numpy_model import FloatArray, Weights

if TYPE_CHECKING:  # reading weights must not import torch
    from torch import Tensor

MODEL, STATE, PROGRESS = "model.safetensors", "state.safetensors", "state.json"
MAX_NUMBERS = 4
"""Maximum numbers in a checkpoint's file per parameter of the model: an optimizer keeps two."""
MAX_BYTES_BESIDE = 1 << 26
"""Maximum size of everything else in a file, such as its header."""
DTYPES: Mapping[str, type[np.generic]] = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16,
    "I64": np.int64, "I32": np.int32, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
"""NumPy dtypes for those of safetensors; NumPy has no bf16, which is the upper half of an fp32."""
Shapes = Mapping[str, tuple[int, ...]]
Count = Annotated[int, Field(ge=0, lt=1 << 53, strict=True)]


@dataclass(frozen=True)
class CheckpointState:
    """The progress of training at a checkpoint."""

    step: Count
    best_score: float | None = None
    """Score of the best checkpoint so far; higher is better."""
    best_nll: float | None = None
    """The loss of that checkpoint on val, which breaks ties."""
    best_step: Count | None = None
    validations_without_gain: Count = 0
    elapsed_s: Annotated[float, Field(ge=0, strict=True)] = 0.0
    """Seconds of training, earlier sessions included."""


def checkpoint_name(step: int) -> str:
    """Folder name of the checkpoint after update `step`."""
    return f"step-{step:08d}"


def save_checkpoint(
    folder: Path,
    weights: "Mapping[str, Tensor]",
    *,
    state: CheckpointState,
    tensors: "Mapping[str, Tensor] | None" = None,
) -> None:
    """Write a checkpoint to `folder`, which appears only once complete.

    `tensors` are the state besides the weights; without them, training cannot resume from this
    checkpoint.

    Raises:
        OSError: writing failed; existing files are untouched.
    """
    with built_beside(folder) as partial:
        if tensors is not None:
            _write_tensors(partial / STATE, tensors)
        _write_tensors(partial / MODEL, weights)
        write_json(partial / PROGRESS, asdict(state))
        write_json(partial / MANIFEST, {"sha256": sha256_of_files(partial)})


def read_weights(folder: Path, shapes: Shapes) -> "dict[str, Tensor]":
    """Read the checkpoint's weights as tensors; see `read_arrays`."""
    return tensors_of(read_arrays(folder, shapes))


def tensors_of(weights: Weights) -> "dict[str, Tensor]":
    """Convert `weights` to fp32 tensors."""
    import torch

    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.items()}


def read_arrays(folder: Path, shapes: Shapes) -> dict[str, FloatArray]:
    """Read the checkpoint's weights by parameter name; the model has parameters of `shapes`.

    Raises:
        DataError: a file is missing, altered, from another model, or contains NaN or infinity.
    """
    weights = _read_arrays(folder, MODEL, shapes)
    for name in sorted(shapes.keys() | weights.keys()):
        found = weights[name].shape if name in weights else "nothing"
        expected = shapes.get(name, "nothing")
        if found != expected:
            raise DataError(f"{folder / MODEL}: {name} is {found}, expected {expected}")
    return weights


def read_training_tensors(folder: Path, shapes: Shapes) -> "dict[str, Tensor]":
    """Read the state besides the weights that resuming needs; the model has `shapes`.

    Raises:
        DataError: the file is altered or missing; exported runs do not have it.
    """
    import torch

    if STATE not in _listed_hashes(folder) and not (folder / STATE).exists():
        raise DataError(f"{folder}: cannot resume from an exported checkpoint, it has no state")
    arrays = _read_arrays(folder, STATE, shapes)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def read_state(folder: Path) -> CheckpointState:
    """Read the progress of training at the checkpoint.

    Raises:
        DataError: the file is altered or missing.
    """
    path = folder / PROGRESS
    _check(folder, PROGRESS)
    return parsed(CheckpointState, read_file(path), path)


def weights_sha256(folder: Path) -> str:
    """sha256 of the checkpoint's weights, after verifying the file.

    Raises:
        DataError: the file is missing or altered.
    """
    return _check(folder, MODEL)


def _write_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    from safetensors.torch import save

    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(on_cpu))


def _read_arrays(folder: Path, name: str, shapes: Shapes) -> dict[str, NDArray[Any]]:
    """Read the arrays in a checkpoint's file; the model's `shapes` limit its size."""
    path = folder / name
    num_parameters = sum(map(math.prod, shapes.values()))
    _check(folder, name)
    data = read_file(path, max_bytes=MAX_BYTES_BESIDE + 4 * MAX_NUMBERS * num_parameters)
    arrays: dict[str, NDArray[Any]] = {}
    with damage_named(path, "safetensors file", SafetensorError, KeyError):
        for tensor_name, entry in deserialize(data):  # type: ignore[no-untyped-call]
            array = np.frombuffer(entry["data"], DTYPES[entry["dtype"]])
            if entry["dtype"] == "BF16":
                array = (array.astype(np.uint32) << 16).view(np.float32)
            arrays[tensor_name] = array.reshape(entry["shape"])
    for tensor_name, array in arrays.items():
        if not np.isfinite(array).all():
            raise DataError(f"{path}: {tensor_name} holds NaN or infinity; use another checkpoint")
    return arrays


def _check(folder: Path, name: str) -> str:
    """sha256 of a checkpoint's file, after comparing it with the manifest."""
    digest = _listed_hashes(folder).get(name)
    if not isinstance(digest, str):
        raise DataError(f"{folder / MANIFEST}: has no sha256 for {name}; the file is damaged")
    check_hashes(folder, {name: digest})
    return digest


def _listed_hashes(folder: Path) -> dict[str, object]:
    """The hashes in the manifest; empty if it is damaged."""
    listed = read_json(folder / MANIFEST).get("sha256")
    return listed if isinstance(listed, dict) else {}
