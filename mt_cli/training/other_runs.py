"""Other runs that a training depends on: the one whose weights it starts from, and teachers."""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from mt_cli.config.schema import Config, ModelConfig
from mt_cli.data.prepared import Prepared
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import sha256_bytes
from mt_cli.model.model import TranslationModel
from mt_cli.runs.checkpoint import read_weights
from mt_cli.runs.opening import open_run, open_run_between
from mt_cli.runs.run import CheckpointReference, Run
from mt_cli.text.tokenizers import TOKENIZER_FOLDER

log = logging.getLogger(__name__)

# Initial weights

FREE_KEYS = ("backend", "dropout", "attention_dropout", "activation_dropout")
"""Keys of [model] that do not affect what trained weights compute."""


def fitting_parent(
    folder: Path, config: Config, prepared: Prepared, *, run_dir: Path
) -> CheckpointReference:
    """The best checkpoint of the run in `folder`, after checking that a new run can start from it.

    Raises:
        UsageError: the tokenizer or the model differs (more layers are fine), or `run_dir` would
            overwrite this run.
        DataError: the run is damaged.
    """
    parent = open_run(folder)
    _check_same_model(config.model, parent)
    best = _reference_to_best(parent, prepared, run_dir=run_dir)
    own = parent.config.model
    layers = {"encoder_layers": own.encoder_layers, "decoder_layers": own.decoder_layers}
    return best.model_copy(update=layers)


def _check_same_model(config: ModelConfig, parent: Run) -> None:
    """Check that the weights of `parent`, or those of some of its layers, fit."""
    different = []
    for key, wanted in config:
        found = getattr(parent.config.model, key)
        has_fewer_layers = key.endswith("_layers") and wanted < found
        if wanted != found and key not in FREE_KEYS and not has_fewer_layers:
            different.append(f"model.{key} is {json.dumps(found)}, not {json.dumps(wanted)}")
    if different:
        raise UsageError(
            f"{parent.folder}: cannot start from this model: {'; '.join(different)}; only the "
            "number of layers may be lower"
        )


def load_parent(run: Run, model: nn.Module) -> None:
    """Load the weights that `run` starts from into `model`; a deeper parent gives some layers.

    Raises:
        DataError: the weights are missing or have changed.
    """
    reference = run.manifest.init_from
    assert reference is not None
    parent = _referenced_run(reference, needed_by=run)
    checkpoint = parent.checkpoint_folder(reference.checkpoint)
    weights = read_weights(checkpoint, parent.parameter_shapes)
    own = run.config.model
    theirs = parent.config.model
    kept = {
        "encoder": kept_layers(theirs.encoder_layers, own.encoder_layers),
        "decoder": kept_layers(theirs.decoder_layers, own.decoder_layers),
    }
    taken = weights_of_layers(weights, kept, names=run.parameter_shapes)
    model.load_state_dict(taken, strict=False)  # tied weights are saved once
    message = f"starting from {reference.folder}, {reference.checkpoint}"
    for stack, depth in (("encoder", theirs.encoder_layers), ("decoder", theirs.decoder_layers)):
        if len(kept[stack]) < depth:
            numbers = ", ".join(str(layer + 1) for layer in kept[stack])
            message += f"; {stack} layers {numbers} of {depth}"
    log.info("%s", message)


def kept_layers(num_layers: int, num_kept: int) -> list[int]:
    """Indices of the layers that a model with `num_kept` layers takes (Shleifer and Rush 2020).

    The first, the last, and others evenly between them; only the first if `num_kept` is 1.
    """
    if num_kept == 1:
        return [0]
    return [round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept)]


def weights_of_layers(
    weights: Mapping[str, Tensor], kept: Mapping[str, Sequence[int]], *, names: Iterable[str]
) -> dict[str, Tensor]:
    """Pick the `kept` layers from a deeper model's weights, for the parameters `names`."""
    taken = {}
    for name in names:
        found = re.match(r"backend\.(\w+)\.layers\.(\d+)", name)
        there = name
        if found is not None:
            stack, number = found.groups()
            layer = kept[stack][int(number)]
            there = f"backend.{stack}.layers.{layer}{name[found.end() :]}"
        taken[name] = weights[there]
    return taken


# Teachers


def references_to_teachers(
    config: Config, prepared: Prepared, *, run_dir: Path
) -> tuple[CheckpointReference, ...]:
    """The best checkpoints of the runs in `training.distil_from`.

    Raises:
        UsageError: a teacher has another tokenizer or direction, or a lower model.max_len, or
            `run_dir` would overwrite it.
        DataError: a teacher is damaged.
    """
    references = []
    for folder in config.training.distil_from or ():
        teacher = open_run_between(
            config.data.src_lang, config.data.tgt_lang, folder, asked_by="training.distil_from"
        )
        if teacher.config.model.max_len < config.model.max_len:
            raise UsageError(
                f"{folder}: a teacher must have model.max_len of {config.model.max_len} or more"
            )
        references.append(_reference_to_best(teacher, prepared, run_dir=run_dir))
    return tuple(references)


def load_teachers(run: Run) -> list[TranslationModel]:
    """The teachers of `run`.

    Raises:
        DataError: a teacher is missing or has changed.
    """
    models = []
    for reference in run.manifest.distil_from:
        teacher = _referenced_run(reference, needed_by=run)
        models.append(teacher.load_model(checkpoint=reference.checkpoint))
        log.info("teacher: %s, %s", reference.folder, reference.checkpoint)
    return models


# Both


def _reference_to_best(run: Run, prepared: Prepared, *, run_dir: Path) -> CheckpointReference:
    """The best checkpoint of `run` with its current hash; its languages may differ."""
    if run.folder.resolve() == run_dir.resolve():
        raise UsageError(f"{run.folder}: training would overwrite this run; add --run DIR")
    options = replace(run.tokenizers.options, lowercase=prepared.tokenizers.options.lowercase)
    hashes = {}
    for name, content in replace(prepared.tokenizers, options=options).to_files().items():
        hashes[f"{TOKENIZER_FOLDER}/{name}"] = sha256_bytes(content)
    if hashes != run.tokenizer_hashes:
        raise UsageError(
            f"{prepared.folder}: has a different tokenizer than {run.folder}; prepare again with "
            f'tokenizer.from_run = "{run.folder}"'
        )
    name = run.resolve_checkpoint("best")
    return CheckpointReference(
        folder=str(run.folder), checkpoint=name, sha256=run.weights_sha256(name)
    )


def _referenced_run(reference: CheckpointReference, *, needed_by: Run) -> Run:
    """The run of `reference`, after checking that its weights are still the same.

    Raises:
        DataError: the run or its checkpoint is missing or damaged, or has other weights.
    """
    remedy = f"{needed_by.folder} needs it: restore it, or train again"
    try:
        run = open_run(Path(reference.folder))
        found = run.weights_sha256(reference.checkpoint)
    except (DataError, OSError, UsageError) as error:
        raise DataError(f"{error}; {remedy}") from error
    if found != reference.sha256:
        folder = run.checkpoint_folder(reference.checkpoint)
        raise DataError(f"{folder}: the weights have changed since this run started; {remedy}")
    return run
