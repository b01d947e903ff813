"""Sealing a run of an early version: its manifests, kept scores, metrics, status and environment.

Knows which documents of a run have a seal, and what has to be whole before they get one.
"""

from collections.abc import Iterator
from pathlib import Path

from mt_cli.artefacts.checkpoint import check_whole
from mt_cli.artefacts.evaluation import (
    HYPS,
    REFS,
    SCORES,
    SOURCES,
    kept_evaluations,
    open_evaluation,
    read_scores,
)
from mt_cli.artefacts.files import MANIFEST, is_there
from mt_cli.artefacts.json_files import SEAL, read_json, sealed, write_json
from mt_cli.artefacts.metrics import seal_metrics
from mt_cli.artefacts.run import Run, open_run
from mt_cli.artefacts.run_facts import ENVIRONMENT, STATUS, read_facts
from mt_cli.errors import DataError


def seal_run(folder: Path) -> list[Path]:
    """Check the run in `folder` whole, and seal each of its documents that has no seal; those are returned.

    Raises:
        UsageError: it is no run folder, or a process is training there.
        DataError: a file is missing or altered; then nothing is sealed.
        ResourceError: a seal cannot be written.
    """
    with open_run(folder, warns=False).locked():
        run = open_run(folder, warns=False)  # now that nobody can replace it
        documents = [run.folder / MANIFEST, *_checked_checkpoints(run), *_checked_evaluations(run)]
        documents += _checked_facts(run)
        unsealed = [path for path in documents if SEAL not in read_json(path, below=run.folder)]
        has_sealed_metrics = seal_metrics(run.metrics_path)  # first, because this checks each line
        for path in unsealed:
            write_json(path, sealed(read_json(path, below=run.folder)), below=run.folder)
    return [*unsealed, *([run.metrics_path] if has_sealed_metrics else [])]


def _checked_facts(run: Run) -> Iterator[Path]:
    """The run's status and environment."""
    for name in (STATUS, ENVIRONMENT):
        if read_facts(run.folder, name, warns=False):
            yield run.folder / name


def _checked_checkpoints(run: Run) -> Iterator[Path]:
    """The manifest of each checkpoint, whose files are as it lists them."""
    for name in run.checkpoints:
        folder = run.checkpoint_folder(name)
        check_whole(folder, run.parameter_shapes)
        yield folder / MANIFEST


def _checked_evaluations(run: Run) -> Iterator[Path]:
    """The scores of each kept evaluation, whose texts are as they say.

    The earliest say nothing of texts, and an exported copy has left them out.
    """
    for folder in kept_evaluations(run.folder):
        lists_texts = "sha256" in read_scores(folder, run=run.folder, warns=False)
        has_texts = any(is_there(folder / name) for name in (SOURCES, REFS, HYPS))
        if lists_texts and has_texts and open_evaluation(folder, run=run.folder, warns=False) is None:
            raise DataError(f"{folder}: a text in it was altered; remove the folder, evaluate makes it anew")
        yield folder / SCORES
