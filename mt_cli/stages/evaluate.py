"""The `evaluate` command: translate test sets and score them against untouched references.

Joins a run, its data and the scorer; knows nothing of search.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mt_cli.artefacts.checkpoint import MODEL, checked_hashes
from mt_cli.artefacts.files import sha256_bytes, write_atomically, write_json
from mt_cli.artefacts.prepared import open_prepared_of
from mt_cli.artefacts.run import Run, open_runs
from mt_cli.config import Backend, Device
from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.machine.progress import ProgressDisplay
from mt_cli.stages.model_card import write_card
from mt_cli.text.normalize import decode_line
from mt_cli.translation.options import SearchOptions
from mt_cli.translation.scoring import Scores, score
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)

LONGEST_NAME = 100
"""Characters of other runs' names in a folder's."""


def score_splits(
    run_dirs: Sequence[Path],
    *,
    checkpoint: str = "best",
    backend: Backend = "scratch",
    device: Device = "auto",
    threads: int = 0,
    search: SearchOptions | None = None,
    splits: Sequence[str] = (),
    src_path: Path | None = None,
    ref_path: Path | None = None,
    data_dir: Path | None = None,
) -> dict[str, Scores]:
    """Scores by split; by default, of every test split that the data of the (first) run have.

    `src_path` and `ref_path` name a parallel text of the user's own instead, scored as `files`.
    `checkpoint` applies to each run. Sources, references, translations and scores go to
    `eval/<split>-<decoding>/` in the first run's folder, if it can be written.

    Raises:
        UsageError: no run, no such split or checkpoint, or only one of the two files.
        DataError: the data are gone or are not those of the run; the files are not parallel.
    """
    if (src_path is None) != (ref_path is None):
        raise UsageError("--src and --ref go together: sources and their references, line by line")
    if src_path is not None and splits:
        raise UsageError("give either --split or --src and --ref, not both")
    runs = open_runs(run_dirs)
    run, *others = runs
    # By name from here on: what `best` means may change while this runs.
    names = [each.checkpoint_folder(checkpoint).name for each in runs]
    translator = Translator.of_runs(
        runs, checkpoints=names, backend=backend, device=device, threads=threads, search=search or {}
    )
    variant = [part for part, usual in ((backend, "scratch"), (checkpoint, "best")) if part != usual]
    members = [Member.of(each, name) for each, name in zip(others, names[1:], strict=True)]
    decoding = "-".join([translator.search_name, *variant]) + _ensemble_name(members)
    scorer = _Scorer(run, translator, decoding, names[0], members)
    if src_path is not None and ref_path is not None:
        scores = {"files": scorer.score("files", *_read(src_path, ref_path))}
    else:
        otherwise = ", or score files of your own with --src FILE --ref FILE"
        prepared = open_prepared_of(run, data_dir, otherwise=otherwise)
        scores = {
            name: scorer.score(name, prepared.lines(name, "src"), prepared.lines(name, "tgt"))
            for name in _chosen_splits(run, splits)
        }
    write_card(run)
    return scores


def _chosen_splits(run: Run, splits: Sequence[str]) -> Sequence[str]:
    """Those of `splits`, or else every test split of `run`'s data."""
    known = run.config.data.splits
    chosen = splits or [name for name in known if name not in ("train", "val")]
    if not chosen:
        raise UsageError(f"{run.folder} has no test split; name one of {', '.join(known)} with --split")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise UsageError(f"unknown split '{unknown[0]}'; the run has {', '.join(known)}")
    return chosen


@dataclass(frozen=True)
class Member:
    """A model that translated together with the run's own."""

    run: str
    """Its folder's name."""
    checkpoint: str
    sha256: str
    """Of its weights."""

    @staticmethod
    def of(run: Run, checkpoint: str) -> "Member":
        """`checkpoint` of `run`."""
        folder = run.checkpoint_folder(checkpoint)
        return Member(run.folder.resolve().name, folder.name, checked_hashes(folder, names=[MODEL])[MODEL])


def _ensemble_name(others: Sequence[Member]) -> str:
    """What tells the folder of an ensemble's scores from those of other ensembles; nothing of one model."""
    if not others:
        return ""
    digest = sha256_bytes("".join(member.sha256 for member in others).encode())
    return f"-with-{'-'.join(member.run for member in others)[:LONGEST_NAME]}-{digest[:8]}"


@dataclass(frozen=True)
class _Scorer:
    """Translates, scores, and leaves both in the run folder."""

    run: Run
    translator: Translator
    decoding: str
    checkpoint: str
    """Whose scores these are, because a run that goes on has others later."""
    others: Sequence[Member]

    def score(self, name: str, sources: list[str], refs: list[str]) -> Scores:
        with ProgressDisplay(f"translating {name}", unit="lines", total=len(sources)) as progress:
            hyps = self.translator.translate(sources, on_progress=progress.update)
        scores = score(hyps, refs, lowercase=self.run.config.data.lowercase)
        folder = self.run.folder / "eval" / f"{name}-{self.decoding}"
        try:
            self._keep(folder, scores, {"src.txt": sources, "ref.txt": refs, "hyp.txt": hyps})
        except ResourceError as error:
            log.warning("%s: only printed, not kept: %s", name, error)
        else:
            log.info("%s: %d sentences, translations in %s", name, scores.n, folder)
        return scores

    def _keep(self, folder: Path, scores: Scores, texts: Mapping[str, Sequence[str]]) -> None:
        for name, lines in texts.items():
            write_atomically(folder / name, "".join(f"{line}\n" for line in lines).encode())
        together = {"with": [asdict(each) for each in self.others]} if self.others else {}
        write_json(folder / "scores.json", {**scores.as_json(), "checkpoint": self.checkpoint, **together})


def _read(src_path: Path, ref_path: Path) -> tuple[list[str], list[str]]:
    sources, refs = _read_lines(src_path), _read_lines(ref_path)
    if len(sources) != len(refs):
        raise DataError(
            f"{ref_path}: {len(refs)} lines, but {src_path} has {len(sources)}; "
            "the files must align line by line"
        )
    if not sources:
        raise DataError(f"{src_path}: empty; there is nothing to score")
    return sources, refs


def _read_lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    raw = data.split(b"\n")
    return [decode_line(line) for line in (raw[:-1] if raw[-1] == b"" else raw)]
