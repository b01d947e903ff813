"""Starting with another run's weights: whether they fit the model and the data, and where they are.

Knows run folders and configs, nothing of how training goes on.
"""

import json
import logging
from pathlib import Path

from torch import nn

from mt_cli.artefacts.checkpoint import fill, read_weights, shapes_of, weights_sha256
from mt_cli.artefacts.files import sha256_bytes
from mt_cli.artefacts.prepared import Prepared
from mt_cli.artefacts.run import TOKENIZER, Run, open_run, tokenizer_hashes
from mt_cli.artefacts.run_manifest import CheckpointReference
from mt_cli.config import Config, differences
from mt_cli.errors import DataError, UsageError, command_line
from mt_cli.model.shallower import weights_of_fewer_layers

log = logging.getLogger(__name__)

FREE = tuple(
    f"model.{key}" for key in ("backend", "dropout", "attention_dropout", "activation_dropout", "init")
)
"""Keys that say nothing of what trained weights compute."""


def fitting_parent(folder: Path, config: Config, prepared: Prepared, *, run_dir: Path) -> CheckpointReference:
    """The best checkpoint of the run in `folder`, if a new run in `run_dir` can start with it.

    Raises:
        UsageError: it has another tokenizer, or another model that does not just have more layers, or is the
            run that is to be replaced.
        DataError: it is damaged.
    """
    if folder.resolve() == run_dir.resolve():
        raise UsageError(f"{folder}: a run cannot start with the one that it replaces; add --run DIR")
    parent = open_run(folder)
    _check_model(parent, config)
    _check_tokenizer(parent, prepared)
    checkpoint = parent.checkpoint_folder("best")
    weights = weights_sha256(checkpoint, parent.parameter_shapes)
    return CheckpointReference(str(folder), checkpoint.name, weights)


def load_parent(parent: CheckpointReference, model: nn.Module) -> None:
    """Fill `model` with the weights that its run started with: of those of a deeper model, with some layers'.

    Raises:
        DataError: they are not there any more, or not the same.
    """
    run = open_run(Path(parent.folder))
    checkpoint = run.checkpoint_folder(parent.checkpoint)
    if weights_sha256(checkpoint, run.parameter_shapes) != parent.sha256:
        raise DataError(
            f"{checkpoint}: not the weights that this run started with; train anew with --init-from"
        )
    weights = read_weights(checkpoint, run.parameter_shapes)
    fill(model, weights_of_fewer_layers(weights, shapes_of(model)))
    log.info("started with %s", checkpoint)


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
            f"{parent.folder} has another model: {'; '.join(different)}; give the config the same keys, or "
            f"fewer layers ({command_line('config', 'new', '--init-from', parent.folder)} takes over all)"
        )


def _check_tokenizer(parent: Run, prepared: Prepared) -> None:
    files = prepared.tokenizers.to_files()
    if {f"{TOKENIZER}{name}": sha256_bytes(data) for name, data in files.items()} != tokenizer_hashes(parent):
        raise UsageError(
            f"{prepared.folder} was prepared with another tokenizer than that of {parent.folder}; "
            f'write from_run = "{parent.folder}" into the config\'s [tokenizer], then prepare it again'
        )
