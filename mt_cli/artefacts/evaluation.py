"""Evaluations that a run keeps: a test set, its translations and their scores, one folder each.

Knows the files and whether they belong together, not how they were made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.files import read_json, sha256_bytes, write_atomically, write_json
from mt_cli.artefacts.text_files import as_lines
from mt_cli.errors import DataError

SCORES = "scores.json"
SOURCES, REFS, HYPS = "src.txt", "ref.txt", "hyp.txt"


@dataclass(frozen=True)
class Evaluation:
    """The texts of a kept evaluation, line by line, and its `scores.json`."""

    sources: list[str]
    refs: list[str]
    hyps: list[str]
    record: Mapping[str, object]


def keep_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Write `evaluation` into `folder`; its scores come last, with the hashes of the texts.

    Raises:
        ResourceError: it cannot be written.
    """
    texts = {SOURCES: evaluation.sources, REFS: evaluation.refs, HYPS: evaluation.hyps}
    contents = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in texts.items()}
    for name, content in contents.items():
        write_atomically(folder / name, content)
    hashes = {name: sha256_bytes(content) for name, content in contents.items()}
    write_json(folder / SCORES, {**evaluation.record, "sha256": hashes})


def open_evaluation(folder: Path) -> Evaluation | None:
    """The evaluation kept in `folder`; none if there is none, or if its files do not belong together.

    Versions before this one kept no hashes: of their evaluations nobody can tell.
    """
    try:
        record = read_json(folder / SCORES)
        contents = {name: (folder / name).read_bytes() for name in (SOURCES, REFS, HYPS)}
    except (DataError, OSError):
        return None
    if record.get("sha256") != {name: sha256_bytes(content) for name, content in contents.items()}:
        return None
    sources, refs, hyps = map(as_lines, contents.values())
    return Evaluation(sources, refs, hyps, record)
