"""Evaluations that are kept in a run folder, and what they say about a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mt_cli.errors import DataError
from mt_cli.evaluation.test_sets import EvalSet
from mt_cli.machine.files import (
    MAX_TEXT_BYTES,
    read_file,
    read_json,
    sha256_bytes,
    write_atomically,
    write_json,
)
from mt_cli.runs.checkpoint import checkpoint_name, weights_sha256
from mt_cli.runs.metrics import read_metrics
from mt_cli.runs.run import SCORES, Run
from mt_cli.text.normalize import split_lines

TEXTS = ("src.txt", "ref.txt", "hyp.txt")
METRIC_KEYS = ("bleu", "chrf", "ter")
SHA256 = "sha256"
"""Key of scores: the hashes of `TEXTS`."""
WEIGHTS = "weights"
"""Key of scores: sha256 of the weights. A validation has it if they were rounded since."""
SPLIT = "split"
"""Key of scores of the run's own data: the split. Scores of other texts stay out of the card."""
SYSTEM_KEYS = {"with", "reranked_by"}
"""Keys of the scores of an ensemble, or of translations that another model chose."""


@dataclass(frozen=True)
class Evaluation:
    """The texts of a kept evaluation, line by line, and its `scores.json`."""

    sources: list[str]
    refs: list[str]
    hyps: list[str]
    record: Mapping[str, object]

    def is_of(self, test_set: EvalSet) -> bool:
        """Whether it is an evaluation of `test_set`."""
        return self.sources == test_set.sources and self.refs == test_set.refs


def open_evaluation(folder: Path) -> Evaluation | None:
    """The evaluation in `folder`; None if there is none, or its files do not belong together."""
    try:
        record = read_json(folder / SCORES)
        contents = {name: read_file(folder / name, max_bytes=MAX_TEXT_BYTES) for name in TEXTS}
    except DataError:
        return None
    if record.get(SHA256) != {name: sha256_bytes(content) for name, content in contents.items()}:
        return None
    src, ref, hyp = (split_lines(contents[name]) for name in TEXTS)
    return Evaluation(src, ref, hyp, record)


def write_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Fill the new `folder`."""
    hashes = {}
    sides = (evaluation.sources, evaluation.refs, evaluation.hyps)
    for name, lines in zip(TEXTS, sides, strict=True):
        content = "".join(f"{line}\n" for line in lines).encode()
        hashes[name] = sha256_bytes(content)
        write_atomically(folder / name, content)
    write_json(folder / SCORES, {**evaluation.record, SHA256: hashes})


@dataclass(frozen=True)
class KeptScore:
    """One score of a split's translations."""

    evaluation: str
    """Name of its folder."""
    split: str
    n: int
    """Sentences."""
    metric: str
    """A key, such as `bleu`."""
    name: str
    """sacreBLEU's, such as `BLEU`."""
    score: float
    signature: str


def kept_scores(run: Run, *, checkpoint: str | None) -> list[KeptScore]:
    """Every score of a split's translations by `checkpoint` alone, with its present weights.

    Raises:
        DataError: a file is damaged.
    """
    found: list[KeptScore] = []
    if checkpoint is None:
        return found
    weights = weights_sha256(run.checkpoint_folder(checkpoint))
    for folder in run.kept_evaluations():
        record = read_json(folder / SCORES)
        is_own = SPLIT in record and not record.keys() & SYSTEM_KEYS
        if not is_own or record.get(WEIGHTS) != weights or record.get("checkpoint") != checkpoint:
            continue
        for metric in METRIC_KEYS:
            match record.get(metric), record.get("n"):
                case (
                    {"name": str(name), "score": int(score) | float(score), "signature": str(by)},
                    int(n),
                ):
                    split = str(record[SPLIT])
                    found.append(KeptScore(folder.name, split, n, metric, name, score, by))
    return found


def validation_of(run: Run, checkpoint: str | None) -> Mapping[str, object]:
    """The record of the validation at which `checkpoint` was saved; empty where there is none.

    That of other weights, which were rounded for a copy of the run, does not count.
    """
    if checkpoint is None:
        return {}
    for record in read_metrics(run.metrics_path):
        is_validation = record["kind"] == "validation"
        if is_validation and checkpoint_name(int(str(record["step"]))) == checkpoint:
            weights = weights_sha256(run.checkpoint_folder(checkpoint))
            return record if record.get(WEIGHTS, weights) == weights else {}
    return {}
