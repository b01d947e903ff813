"""Small copies of runs: everything that commands need, without the training state."""

from dataclasses import replace
from pathlib import Path

import torch

from mt_cli.machine.files import MANIFEST, MAX_TEXT_BYTES, read_file, write_atomically, write_json
from mt_cli.runs.checkpoint import read_state, read_weights, save_checkpoint, weights_sha256
from mt_cli.runs.reports import mark_validation
from mt_cli.runs.run import (
    CHECKPOINTS,
    ENVIRONMENT,
    EVALUATIONS,
    METRICS,
    POINTERS,
    SCORES,
    STATUS,
    Run,
)

RUN_QUANTIZATIONS = ("none", "float16")
"""Number formats for the weights of a copied run."""


def copy_run(run: Run, folder: Path, *, checkpoint: str, has_halves: bool) -> None:
    """Copy `run` with one `checkpoint` into `folder`, with weights in 16 bits if `has_halves`.

    It copies config, tokenizer, metrics, and the scores if the weights are bit-identical. It leaves
    out other checkpoints, the optimizer's state, the log, and the texts of evaluations, which
    belong to their corpus.

    Raises:
        DataError: a file of the run is damaged.
        OSError: the folder cannot be written.
    """
    source = run.checkpoint_folder(checkpoint)
    dtype = torch.float16 if has_halves else torch.float32
    weights = read_weights(source, run.parameter_shapes)
    weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
    state = read_state(source)
    if state.best_step != state.step:  # the only checkpoint in the copy is also the best
        state = replace(state, best_step=state.step, best_score=None)
    save_checkpoint(folder / CHECKPOINTS / source.name, weights, state=state)
    for pointer in POINTERS:
        write_atomically(folder / f"{pointer}.txt", f"{source.name}\n".encode())
    names = [MANIFEST, *run.manifest.sha256]
    names += [name for name in (ENVIRONMENT, STATUS, METRICS) if (run.folder / name).exists()]
    own = run.weights_sha256(source.name)
    copied = weights_sha256(folder / CHECKPOINTS / source.name)
    if own == copied:
        names += [f"{EVALUATIONS}/{each.name}/{SCORES}" for each in run.kept_evaluations()]
    for name in names:
        write_atomically(folder / name, read_file(run.folder / name, max_bytes=MAX_TEXT_BYTES))
    if own != copied and METRICS in names:
        mark_validation(folder / METRICS, step=state.step, weights=own)
    if own != copied and STATUS in names:
        status = run.status().model_copy(update={"best_score": None})
        write_json(folder / STATUS, status.model_dump(exclude_unset=True))
