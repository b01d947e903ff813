"""Saved evaluations in a run folder, and the scores of a checkpoint in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt_cli.machine.files import read_json, sha256_bytes, write_atomically, write_json
from mt_cli.runs.checkpoint import checkpoint_name
from mt_cli.runs.reports import ValidationRecord, read_metrics
from mt_cli.runs.run import SCORES, Run

METRIC_KEYS = ("bleu", "chrf", "ter")
WEIGHTS = "weights"
"""Key in a scores file: sha256 of the weights. A validation has it if they were rounded since."""
SPLIT = "split"
"""Key in a scores file of the run's own data: the split. The card only shows these scores."""
SYSTEM_KEYS = {"with", "reranked_by"}
"""Keys in the scores file of an ensemble or of reranked translations."""


def write_evaluation(
    folder: Path,
    sources: Sequence[str],
    refs: Sequence[Sequence[str]],
    hyps: Sequence[str],
    record: Mapping[str, object],
) -> None:
    """Write the texts, line by line, and `record` as scores.json to the new `folder`.

    Further references go to ref2.txt, ref3.txt …
    """
    texts = {"src.txt": sources, "ref.txt": refs[0], "hyp.txt": hyps}
    texts |= {f"ref{number}.txt": more for number, more in enumerate(refs[1:], 2)}
    hashes = {}
    for name, lines in texts.items():
        content = "".join(f"{line}\n" for line in lines).encode()
        hashes[name] = sha256_bytes(content)
        write_atomically(folder / name, content)
    write_json(folder / SCORES, {**record, "sha256": hashes})


@dataclass(frozen=True)
class KeptEvaluation:
    """A saved evaluation of a split."""

    name: str
    """Name of its folder."""
    split: str
    n: int
    """Number of sentences."""
    search: str
    """Search settings, such as `beam_size 5, length_penalty 1.8`."""
    scores: Mapping[str, Mapping[str, Any]]
    """By metric, such as `bleu`: sacreBLEU's `name`, `score`, `signature` and more."""


def kept_evaluations(run: Run, *, checkpoint: str | None) -> list[KeptEvaluation]:
    """All evaluations of splits by `checkpoint` alone, with its current weights.

    Raises:
        DataError: a file is damaged.
    """
    evaluations: list[KeptEvaluation] = []
    if checkpoint is None:
        return evaluations
    weights = run.weights_sha256(checkpoint)
    for folder in run.kept_evaluations():
        record = read_json(folder / SCORES)
        is_own = SPLIT in record and not record.keys() & SYSTEM_KEYS
        if not is_own or record.get(WEIGHTS) != weights or record.get("checkpoint") != checkpoint:
            continue
        settings = record.get("search")
        search = ""
        if isinstance(settings, dict):
            search = ", ".join(f"{key} {value}" for key, value in settings.items())
        scores: dict[str, Any] = {}
        for metric in METRIC_KEYS:
            match record.get(metric):
                case {"name": str(), "score": int() | float(), "signature": str()} as details:
                    scores[metric] = details
        n = record.get("n")
        if scores and isinstance(n, int):
            split = str(record[SPLIT])
            evaluations.append(KeptEvaluation(folder.name, split, n, search, scores))
    return evaluations


def validation_of(run: Run, checkpoint: str | None) -> ValidationRecord | None:
    """The record of the validation at which `checkpoint` was saved, if there is one.

    None too if the weights have changed since, by rounding for a copy of the run.
    """
    if checkpoint is None:
        return None
    _, validations = read_metrics(run.metrics_path)
    for record in validations:
        if checkpoint_name(record.step) == checkpoint:
            return record if record.weights in (None, run.weights_sha256(checkpoint)) else None
    return None
