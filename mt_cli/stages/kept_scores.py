"""Scores that a run folder keeps: of which checkpoint's translations, by which metric, with which signature.

Reads what `evaluate` has written; scores nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mt_cli.artefacts.evaluation import kept_evaluations, read_scores
from mt_cli.artefacts.run import Run

METRICS = ("bleu", "chrf", "ter")
SEARCH = re.compile(r"greedy|beam\d+-alpha")
"""How the name of a search begins."""
OF_SEVERAL = {"with", "reranked_by"}
"""Keys of the scores of a system: an ensemble, or a model whose translations another one chose."""


@dataclass(frozen=True)
class KeptScore:
    """One metric's verdict on one evaluation."""

    evaluation: str
    """Name of its folder, such as `test-greedy`."""
    test_set: str
    """The split; of files of somebody's own, the whole name of the folder."""
    decoding: str
    """How translations were searched for, such as `greedy`; empty for files of somebody's own."""
    metric: str
    """Key of the metric: `bleu`, `chrf` or `ter`."""
    name: str
    """What sacreBLEU calls it."""
    score: float
    signature: str
    n: int
    """Sentences."""


def kept_scores(run: Run, *, checkpoint: str | None) -> tuple[KeptScore, ...]:
    """Every score of the translations that `checkpoint` alone has made; a system's are not its own.

    Raises:
        DataError: a file is damaged.
    """
    return tuple(
        score
        for folder in kept_evaluations(run.folder)
        for score in _scores_in(
            read_scores(folder, run=run.folder),
            folder.name,
            splits=run.config.data.splits,
            checkpoint=checkpoint,
        )
    )


def _scores_in(
    record: Mapping[str, object], evaluation: str, *, splits: Sequence[str], checkpoint: str | None
) -> Iterator[KeptScore]:
    if checkpoint is None or record.get("checkpoint") != checkpoint or record.keys() & OF_SEVERAL:
        return
    test_set, decoding = test_set_and_decoding(evaluation, splits)
    for metric in METRICS:
        match record.get(metric), record.get("n"):
            case {"name": str(name), "score": int(score) | float(score), "signature": str(signature)}, int(n):
                yield KeptScore(evaluation, test_set, decoding, metric, name, float(score), signature, n)


def test_set_and_decoding(evaluation: str, splits: Sequence[str]) -> tuple[str, str]:
    """Split and search in the name of a folder; of somebody's own files, the whole name and nothing.

    Such files may be called like a split, but no search follows.
    """
    for split in sorted(splits, key=len, reverse=True):  # one may begin like another
        search = evaluation.removeprefix(f"{split}-")
        if search != evaluation and SEARCH.match(search):
            return split, search
    return evaluation, ""
