"""Starting a training with the weights of another run."""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from mt_cli.config.messages import command_line
from mt_cli.config.schema import Config
from mt_cli.data.prepared import Prepared
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import sha256_bytes
from mt_cli.runs.checkpoint import read_weights, weights_sha256
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import ParentReference, Run
from mt_cli.text.tokenizers import TOKENIZER_FOLDER

log = logging.getLogger(__name__)

FREE = ("backend", "dropout", "attention_dropout", "activation_dropout", "init")
"""Keys of [model] that say nothing of what trained weights compute."""


def fitting_parent(
    folder: Path, config: Config, prepared: Prepared, *, run_dir: Path
) -> ParentReference:
    """The best checkpoint of the run in `folder`, if a new run in `run_dir` can start with it.

    Raises:
        UsageError: it has another tokenizer, or a model that differs in more than having more
            layers, or is the run that is to be replaced.
        DataError: it is damaged.
    """
    if folder.resolve() == run_dir.resolve():
        raise UsageError(
            f"{folder}: a run cannot start with the one that it replaces; add --run DIR"
        )
    parent = open_run(folder)
    tokenizers = prepared.tokenizers
    there = parent.config.model
    different = [
        f"model.{key} is {json.dumps(wanted)}, there {json.dumps(found)}"
        for (key, wanted), (_, found) in zip(config.model, there, strict=True)
        if wanted != found and key not in FREE and not (key.endswith("_layers") and wanted < found)
    ]
    if different:
        raise UsageError(
            f"{folder} has another model: {'; '.join(different)}; give the config the same keys, "
            f"as {command_line('config', 'new', '--init-from', folder)} does; only encoder_layers "
            "and decoder_layers may be lower"
        )
    options = replace(parent.tokenizers.options, lowercase=tokenizers.options.lowercase)
    files = replace(tokenizers, options=options).to_files()  # of other languages, perhaps
    if {
        f"{TOKENIZER_FOLDER}{name}": sha256_bytes(data) for name, data in files.items()
    } != parent.tokenizer_hashes:
        raise UsageError(
            f"{prepared.folder} was prepared with another tokenizer than that of {folder}; "
            f'write from_run = "{folder}" into the config\'s [tokenizer], then prepare it again'
        )
    checkpoint = parent.checkpoint_folder("best")
    weights = weights_sha256(checkpoint)
    return ParentReference(
        str(folder), checkpoint.name, weights, there.encoder_layers, there.decoder_layers
    )


def load_parent(run: Run, model: nn.Module) -> None:
    """Fill `model` with the weights that `run` started with; from a deeper model, some layers'.

    Raises:
        DataError: they are not there any more, or not the same.
    """
    reference, own = run.init_from, run.config.model
    assert reference is not None
    remedy = f"{run.folder} starts with them: put that right, or train anew with --init-from"
    try:
        parent = open_run(Path(reference.folder))
        checkpoint = parent.checkpoint_folder(reference.checkpoint)
        digest, weights = (
            weights_sha256(checkpoint),
            read_weights(checkpoint, parent.parameter_shapes),
        )
    except (DataError, UsageError) as error:
        raise DataError(f"{error}; {remedy}") from error
    if digest != reference.sha256:
        raise DataError(f"{checkpoint}: not the weights that this run started with; {remedy}")
    depths = {
        "encoder": parent.config.model.encoder_layers,
        "decoder": parent.config.model.decoder_layers,
    }
    kept = {
        stack: kept_layers(depth, getattr(own, f"{stack}_layers"))
        for stack, depth in depths.items()
    }
    taken = weights_of_layers(weights, kept, names=run.parameter_shapes)
    model.load_state_dict(taken, strict=False)  # it has no names for tied ones
    layers = [
        f"; {stack} layers {', '.join(str(layer + 1) for layer in kept[stack])} of {depth}"
        for stack, depth in depths.items()
        if len(kept[stack]) < depth
    ]
    log.info("started with %s, %s%s", reference.folder, reference.checkpoint, "".join(layers))


def kept_layers(num_layers: int, num_kept: int) -> list[int]:
    """Which of `num_layers` layers, from 0, a model with `num_kept` takes over (Shleifer and Rush
    2020).

    The first and the last, and others evenly between them; where one is kept, the first.
    """
    if num_kept == 1:
        return [0]
    return [round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept)]


def weights_of_layers(
    weights: Mapping[str, Tensor], kept: Mapping[str, Sequence[int]], *, names: Iterable[str]
) -> dict[str, Tensor]:
    """The `weights` of a deeper model for the parameters `names` of one that has only its `kept`
    layers.
    """

    def name_there(name: str) -> str:
        return re.sub(
            r"^backend\.(\w+)\.layers\.(\d+)",
            lambda m: f"backend.{m[1]}.layers.{kept[m[1]][int(m[2])]}",
            name,
        )

    return {name: weights[name_there(name)] for name in names}
