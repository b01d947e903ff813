"""Starting with another run's weights: whether they fit the model and the data, and where they are.

Knows run folders and configs, nothing of how training goes on.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from mt_cli.artefacts.checkpoint import fill, read_weights, shapes_of, weights_sha256
from mt_cli.artefacts.checkpoints import named_checkpoint
from mt_cli.artefacts.files import sha256_bytes
from mt_cli.artefacts.prepared import Prepared
from mt_cli.artefacts.run import TOKENIZER, Run, model_shapes, open_run, tokenizer_hashes
from mt_cli.artefacts.run_manifest import ParentReference
from mt_cli.config import Config, ModelConfig, differences
from mt_cli.errors import DataError, UsageError, command_line
from mt_cli.model.shallower import kept_layers, weights_of_fewer_layers
from mt_cli.model.shapes import Shape, check_fits_memory

log = logging.getLogger(__name__)

FREE = tuple(
    f"model.{key}" for key in ("backend", "dropout", "attention_dropout", "activation_dropout", "init")
)
"""Keys that say nothing of what trained weights compute."""


def fitting_parent(folder: Path, config: Config, prepared: Prepared, *, run_dir: Path) -> ParentReference:
    """The best checkpoint of the run in `folder`, if a new run in `run_dir` can start with it.

    Raises:
        UsageError: it has another tokenizer, or a model that differs in more than having more layers, or is
            the run that is to be replaced.
        DataError: it is damaged.
        ResourceError: there is not the memory for its weights.
    """
    if folder.resolve() == run_dir.resolve():
        raise UsageError(f"{folder}: a run cannot start with the one that it replaces; add --run DIR")
    parent = open_run(folder)
    _check_model(parent, config)
    _check_tokenizer(parent, prepared)
    _check_fits(folder, parent.parameter_shapes)
    checkpoint = parent.checkpoint_folder("best")
    weights = weights_sha256(checkpoint, parent.parameter_shapes)
    model = parent.config.model
    return ParentReference(str(folder), checkpoint.name, weights, model.encoder_layers, model.decoder_layers)


def load_parent(run: Run, model: nn.Module) -> None:
    """Fill `model` with the weights that `run` started with, if any; from a deeper model, some layers'.

    Raises:
        DataError: they are not there any more, or not the same.
        ResourceError: there is not the memory for them.
    """
    parent, own = run.init_from, run.config.model
    if parent is None:
        return
    theirs = _parent_model(run, parent)
    shapes = model_shapes(theirs, run.tokenizers)
    _check_fits(Path(parent.folder), shapes)
    try:
        weights = _parent_weights(parent, shapes)
    except DataError as error:
        raise DataError(
            f"{error}; {run.folder} starts with them: put that right, or train anew with --init-from"
        ) from error
    fill(model, weights_of_fewer_layers(weights, shapes_of(model)))
    log.info(
        "started with %s, %s%s%s",
        parent.folder,
        parent.checkpoint,
        _describe_layers("encoder", theirs.encoder_layers, own.encoder_layers),
        _describe_layers("decoder", theirs.decoder_layers, own.decoder_layers),
    )


def _parent_model(run: Run, parent: ParentReference) -> ModelConfig:
    """The model of the run that `run` started with: as its own, or deeper."""
    own = run.config.model
    theirs = own.model_copy(
        update={
            "encoder_layers": parent.encoder_layers or own.encoder_layers,
            "decoder_layers": parent.decoder_layers or own.decoder_layers,
        }
    )
    if theirs.encoder_layers < own.encoder_layers or theirs.decoder_layers < own.decoder_layers:
        raise DataError(f"{run.folder}: its manifest names a parent with fewer layers; train anew")
    return theirs


def _parent_weights(parent: ParentReference, shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    checkpoint = named_checkpoint(Path(parent.folder), parent.checkpoint)
    if weights_sha256(checkpoint, shapes) != parent.sha256:
        raise DataError(f"{checkpoint}: not the weights that this run started with")
    return read_weights(checkpoint, shapes)


def _check_fits(folder: Path, shapes: Mapping[str, Shape]) -> None:
    """Make sure that the weights of the run in `folder`, which have `shapes`, can be held."""
    remedy = "start with a smaller run, or use more memory"
    check_fits_memory(shapes, whose=f"the model of {folder}", remedy=remedy)


def _describe_layers(stack: str, num_layers: int, num_kept: int) -> str:
    """Which layers were taken, counted from 1, where not all were."""
    if num_kept == num_layers:
        return ""
    kept = ", ".join(str(layer + 1) for layer in kept_layers(num_layers, num_kept))
    return f"; {stack} {'layer' if num_kept == 1 else 'layers'} {kept} of {num_layers}"


def _check_model(parent: Run, config: Config) -> None:
    model, there = config.model, parent.config.model
    depths = (
        ("model.encoder_layers", model.encoder_layers, there.encoder_layers),
        ("model.decoder_layers", model.decoder_layers, there.decoder_layers),
    )
    fewer = [key for key, wanted, found in depths if wanted < found]
    different = [
        f"{key} is {json.dumps(wanted)}, there {json.dumps(found)}"
        for key, (wanted, found) in differences(config, parent.config).items()
        if key.startswith("model.") and key not in (*FREE, *fewer)
    ]
    if different:
        raise UsageError(
            f"{parent.folder} has another model: {'; '.join(different)}; give the config the same keys, as "
            f"{command_line('config', 'new', '--init-from', parent.folder)} does; only encoder_layers and "
            f"decoder_layers may be lower"
        )


def _check_tokenizer(parent: Run, prepared: Prepared) -> None:
    files = prepared.tokenizers.to_files()
    if {f"{TOKENIZER}{name}": sha256_bytes(data) for name, data in files.items()} != tokenizer_hashes(parent):
        raise UsageError(
            f"{prepared.folder} was prepared with another tokenizer than that of {parent.folder}; "
            f'write from_run = "{parent.folder}" into the config\'s [tokenizer], then prepare it again'
        )
