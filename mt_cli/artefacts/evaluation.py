"""Evaluations that a run keeps: a test set, its translations and their scores, one folder each.

Knows the files and whether they belong together, not how they were made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.files import is_there, read_file, sha256_bytes, write_atomically
from mt_cli.artefacts.json_files import read_sealed, sealed, write_json
from mt_cli.artefacts.text_files import as_lines
from mt_cli.errors import DataError

SCORES = "scores.json"
SOURCES, REFS, HYPS = "src.txt", "ref.txt", "hyp.txt"
EARLY_KEYS = {
    "bleu", "chrf", "ter", "n", "length_ratio", "unk_rate", "sentences_per_s",
    "checkpoint", "with", "sha256",
}  # fmt: skip
"""Of scores that were kept before they were sealed."""
MOST_BYTES = 1 << 26
"""Of a text that is used again; what is larger is translated anew."""


@dataclass(frozen=True)
class Evaluation:
    """The texts of a kept evaluation, line by line, and its `scores.json`."""

    sources: list[str]
    refs: list[str]
    hyps: list[str]
    record: Mapping[str, object]


def keep_evaluation(folder: Path, evaluation: Evaluation, *, below: Path | None = None) -> None:
    """Write `evaluation` into `folder`; its scores come last, with the hashes of the texts, sealed.

    From the folder `below` on (by default, `folder`), no link is followed.

    Raises:
        ResourceError: it cannot be written.
        DataError: a folder on the way is a link.
    """
    texts = {SOURCES: evaluation.sources, REFS: evaluation.refs, HYPS: evaluation.hyps}
    contents = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in texts.items()}
    for name, content in contents.items():
        write_atomically(folder / name, content, below=below)
    hashes = {name: sha256_bytes(content) for name, content in contents.items()}
    write_json(folder / SCORES, sealed({**evaluation.record, "sha256": hashes}), below=below)


def kept_evaluations(run: Path) -> list[Path]:
    """Folders of the evaluations that the run folder `run` keeps, by name."""
    return sorted(path for path in run.glob("eval/*") if is_there(path / SCORES))


def read_scores(folder: Path, *, run: Path, warns: bool = True) -> dict[str, object]:
    """The `scores.json` of `folder`, which is in the folder `run` and which nobody has altered.

    `warns` says whether to warn of one without a seal.

    Raises:
        DataError: it cannot be read, or was altered.
    """
    return read_sealed(folder / SCORES, early_keys=EARLY_KEYS, below=run, warns=warns)


def open_evaluation(folder: Path, *, run: Path, warns: bool = True) -> Evaluation | None:
    """The evaluation kept in `folder`; none if there is none, or if its files do not belong together.

    Early versions kept no hashes: of their evaluations nobody can tell. The rest is as for `read_scores`.
    """
    try:
        record = read_scores(folder, run=run, warns=warns)
        contents = {
            name: read_file(folder / name, most=MOST_BYTES, below=run) for name in (SOURCES, REFS, HYPS)
        }
    except DataError:
        return None
    if record.get("sha256") != {name: sha256_bytes(content) for name, content in contents.items()}:
        return None
    sources, refs, hyps = map(as_lines, contents.values())
    return Evaluation(sources, refs, hyps, record)
