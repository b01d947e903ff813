"""Checkpoints: weights and training state, written as a whole and checked before use.

Knows tensors by name; never a model's structure or a run's history.

    step-00001200/model.safetensors   weights, tied ones once
                  state.safetensors   what resuming needs beside them: the optimiser's state
                  state.json          progress and score
                  manifest.json       sha256 of the three, sealed

The folder and its files are real ones: neither is reached through a link.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor, nn

from mt_cli.artefacts.files import MANIFEST, check_hashes, is_there, sha256_file
from mt_cli.artefacts.folders import built_beside
from mt_cli.artefacts.json_files import read_json, read_sealed, sealed, write_json
from mt_cli.artefacts.tensor_files import Shapes, most_bytes, read_tensors, write_tensors
from mt_cli.errors import DataError

MODEL, STATE, PROGRESS = "model.safetensors", "state.safetensors", "state.json"

Count = Annotated[int, Field(ge=0, lt=1 << 53, strict=True)]


@dataclass(frozen=True)
class CheckpointState:
    """Where training stood."""

    step: Count
    epoch: Count
    update_of_epoch: Count
    best_score: float | None = None
    """Score of the best checkpoint so far; higher is better."""
    best_step: Count | None = None
    validations_without_gain: Count = 0
    elapsed_s: Annotated[float, Field(ge=0, strict=True)] = 0.0
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
        write_tensors(partial / STATE, tensors)
        _complete(partial, dict(model.named_parameters()), state)


def save_weights(folder: Path, weights: Mapping[str, Tensor], *, state: CheckpointState) -> None:
    """Write a checkpoint that has all but what resuming needs: it can be used, and not be trained on.

    Raises:
        ResourceError: it cannot be written.
    """
    with built_beside(folder) as partial:
        _complete(partial, weights, state)


def _complete(partial: Path, weights: Mapping[str, Tensor], state: CheckpointState) -> None:
    """Write what every checkpoint has, and the manifest last."""
    write_tensors(partial / MODEL, weights)
    write_json(partial / PROGRESS, asdict(state))
    hashes = {path.name: sha256_file(path) for path in sorted(partial.iterdir())}
    write_json(partial / MANIFEST, sealed({"sha256": hashes}))


def read_weights(folder: Path, shapes: Shapes) -> dict[str, Tensor]:
    """The checkpoint's weights, by parameter name, of a model whose parameters have `shapes`.

    Raises:
        DataError: a file is missing or altered, belongs to another model, or holds NaN or infinity.
    """
    digest = _listed_hashes(folder, names=[MODEL], warns=True)[MODEL]
    return read_tensors(folder / MODEL, below=folder.parent, sha256=digest, shapes=shapes)


@torch.no_grad()
def fill(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give each parameter of `model` its weights."""
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])


def load_weights(folder: Path, model: nn.Module) -> None:
    """Fill `model` with the checkpoint's weights.

    Raises:
        DataError: see `read_weights`; the model is as it was.
    """
    fill(model, read_weights(folder, shapes_of(model)))


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter, by name."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def load_training_tensors(folder: Path, shapes: Shapes) -> dict[str, Tensor]:
    """What resuming needs besides the weights, of a model whose parameters have `shapes`.

    Raises:
        DataError: it is altered or missing; a run that was exported does not have it.
    """
    if not is_there(folder / STATE) and STATE not in _manifest(folder, warns=False):
        raise DataError(f"{folder}: an exported checkpoint, without what training needs to go on from it")
    digest = _listed_hashes(folder, names=[STATE], warns=True)[STATE]
    return read_tensors(
        folder / STATE, below=folder.parent, sha256=digest, shapes=shapes, are_parameters=False
    )


def load_state(folder: Path) -> CheckpointState:
    """Where training stood when the checkpoint was written."""
    checked_hashes(folder, {}, names=[PROGRESS])
    try:
        return TypeAdapter(CheckpointState).validate_python(read_json(folder / PROGRESS, below=folder.parent))
    except ValidationError as error:
        raise DataError(
            f"{folder / PROGRESS}: not a training state; train anew, or restore it from a copy"
        ) from error


def checked_hashes(
    folder: Path, shapes: Shapes, *, names: Sequence[str], warns: bool = True
) -> dict[str, str]:
    """Check the files `names` of a checkpoint, whose parameters have `shapes`, and return their sha256.

    `warns` says whether to warn of a manifest without a seal.

    Raises:
        DataError: one is missing or altered.
    """
    found = _listed_hashes(folder, names=names, warns=warns)
    check_hashes(folder, found, most=most_bytes(shapes))
    return found


def weights_sha256(folder: Path, shapes: Shapes) -> str:
    """sha256 of the checkpoint's weights, whose parameters have `shapes`; the file is checked.

    Raises:
        DataError: it is missing or altered.
    """
    return checked_hashes(folder, shapes, names=[MODEL])[MODEL]


def check_whole(folder: Path, shapes: Shapes) -> None:
    """Check every file that a checkpoint lists, and the weights at least; its parameters have `shapes`.

    Raises:
        DataError: one is missing or altered.
    """
    listed = [name for name in (STATE,) if name in _manifest(folder, warns=False) or is_there(folder / name)]
    checked_hashes(folder, shapes, names=[MODEL, PROGRESS, *listed], warns=False)


def _listed_hashes(folder: Path, *, names: Sequence[str], warns: bool) -> dict[str, str]:
    """The sha256 that the manifest lists of each of `names`, which are there."""
    hashes = _manifest(folder, warns=warns)
    for name in names:
        if not isinstance(hashes.get(name), str):
            raise DataError(f"{folder / MANIFEST}: lists no sha256 of {name}; the file is damaged")
        if not is_there(folder / name):
            raise DataError(f"{folder / name}: missing, though {folder / MANIFEST} lists it")
    return {name: str(hashes[name]) for name in names}


def _manifest(folder: Path, *, warns: bool) -> Mapping[str, object]:
    """What the manifest lists: the sha256 of each file."""
    if not is_there(folder / MANIFEST):
        raise DataError(f"{folder}: no complete checkpoint ({MANIFEST} is missing)")
    manifest = read_sealed(folder / MANIFEST, early_keys=["sha256"], below=folder.parents[1], warns=warns)
    listed = manifest.get("sha256")
    return listed if isinstance(listed, dict) else {}
