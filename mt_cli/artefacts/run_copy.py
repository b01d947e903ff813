"""A copy of a run without what only its training needs: to be handed on, small and as usable as the run.

Knows the files of a run; never what a model makes of them.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from mt_cli.artefacts.checkpoint import load_state, read_weights, save_weights
from mt_cli.artefacts.checkpoints import CHECKPOINTS, POINTERS, write_pointer
from mt_cli.artefacts.evaluation import SCORES, kept_evaluations, read_scores
from mt_cli.artefacts.files import MANIFEST, is_there, read_file, write_atomically
from mt_cli.artefacts.run import METRICS, Run
from mt_cli.artefacts.run_facts import ENVIRONMENT, STATUS, read_facts

TOLD = (ENVIRONMENT, STATUS, METRICS)
"""What a run tells of its training, as far as it is there."""
MOST_BYTES = 1 << 28
"""Of a file."""


def copy_run(run: Run, folder: Path, *, checkpoint: str, has_halves: bool) -> None:
    """Fill `folder` with `run` as far as the weights of `checkpoint`, with `has_halves` in 16 bits each.

    Kept: config, tokenizer, scores, and what training measured. Left out: other checkpoints, the optimiser's
    state, the log, and the texts of evaluations, which belong to their corpus.

    Raises:
        DataError: a file of the run is damaged.
        ResourceError: the folder cannot be written.
    """
    evaluations = kept_evaluations(run.folder)
    _check_seals(run, evaluations)
    told = [name for name in TOLD if is_there(run.folder / name)]
    scores = [f"eval/{each.name}/{SCORES}" for each in evaluations]
    for name in (MANIFEST, *run.sha256, *told, *scores):
        data = read_file(run.folder / name, most=MOST_BYTES, below=run.folder)
        write_atomically(folder / name, data)
    source = run.checkpoint_folder(checkpoint)
    dtype = torch.float16 if has_halves else torch.float32
    weights = {name: each.to(dtype) for name, each in read_weights(source, run.parameter_shapes).items()}
    state = load_state(source)
    if state.best_step != state.step:  # it is all that there is, and so the best
        state = replace(state, best_step=state.step, best_score=None)
    save_weights(folder / CHECKPOINTS / source.name, weights, state=state)
    for pointer in POINTERS:
        write_pointer(folder, pointer, step=state.step)


def _check_seals(run: Run, evaluations: Iterable[Path]) -> None:
    """Make sure that what is copied as it stands is whole; of the manifest, opening the run did."""
    for name in (STATUS, ENVIRONMENT):
        read_facts(run.folder, name)
    for _ in run.metrics():
        pass
    for folder in evaluations:
        read_scores(folder, run=run.folder)
