"""Starting with another run's weights: whether they fit the model and the data, and where they are.

Knows run folders and configs, nothing of how training goes on.
"""

import json
import logging
from pathlib import Path

from torch import nn

from mt_cli.artefacts.checkpoint import fill, read_weights, shapes_of, weights_sha256
from mt_cli.artefacts.checkpoints import named_checkpoint
from mt_cli.artefacts.files import sha256_bytes
from mt_cli.artefacts.prepared import Prepared
from mt_cli.artefacts.run import TOKENIZER, Run, model_shapes, open_run, tokenizer_hashes
from mt_cli.artefacts.run_manifest import ParentReference
from mt_cli.config import Config, ModelConfig, differences
from mt_cli.errors import DataError, UsageError, command_line
from mt_cli.model.shallower import kept_layers, weights_of_fewer_layers
from mt_cli.model.shapes import check_fits_memory

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
    """
    if folder.resolve() == run_dir.resolve():
        raise UsageError(f"{folder}: a run cannot start with the one that it replaces; add --run DIR")
    parent = open_run(folder)
    _check_model(parent, config)
    _check_tokenizer(parent, prepared)
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
    check_fits_memory(shapes)
    try:
        checkpoint = named_checkpoint(Path(parent.folder), parent.checkpoint)
    except DataError as error:
        raise DataError(
            f"{error}, and {run.folder} has to start with it; put it back, or train anew with --init-from"
        ) from error
    if weights_sha256(checkpoint, shapes) != parent.sha256:
        raise DataError(
            f"{checkpoint}: not the weights that this run started with; train anew with --init-from"
        )
    fill(model, weights_of_fewer_layers(read_weights(checkpoint, shapes), shapes_of(model)))
    log.info(
        "started with %s%s%s",
        checkpoint,
        _layers_said("encoder", theirs.encoder_layers, own.encoder_layers),
        _layers_said("decoder", theirs.decoder_layers, own.decoder_layers),
    )


def _parent_model(run: Run, parent: ParentReference) -> ModelConfig:
    """The model of the run that `run` started with: as its own, or deeper."""
    own = run.config.model
    depths = {
        "encoder_layers": parent.encoder_layers or own.encoder_layers,
        "decoder_layers": parent.decoder_layers or own.decoder_layers,
    }
    if any(layers < getattr(own, key) for key, layers in depths.items()):
        raise DataError(f"{run.folder}: says that it started with a model of fewer layers; train anew")
    return own.model_copy(update=depths)


def _layers_said(stack: str, num_layers: int, num_kept: int) -> str:
    """Which layers were taken, counted from 1, where not all were."""
    if num_kept == num_layers:
        return ""
    kept = ", ".join(str(layer + 1) for layer in kept_layers(num_layers, num_kept))
    return f"; of its {num_layers} {stack} layers: {kept}"


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
