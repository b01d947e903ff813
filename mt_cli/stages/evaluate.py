"""The `evaluate` command: translate test sets and score them against untouched references.

Joins a system and its test sets; knows nothing of search or scores.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from mt_cli.artefacts.exported_run import AnyRun
from mt_cli.artefacts.files import sha256_bytes
from mt_cli.artefacts.prepared import open_prepared_of
from mt_cli.artefacts.text_files import as_lines, check_aligned, read_bytes
from mt_cli.config import Backend, Device
from mt_cli.errors import DataError, UsageError
from mt_cli.stages.model_card import write_card
from mt_cli.stages.system import Assessment, EvalSet, System, shortened_name
from mt_cli.translation.options import SearchOptions
from mt_cli.translation.reranker import Reranking


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
    reranking: Reranking | None = None,
) -> dict[str, Assessment]:
    """Scores by split; by default, of every test split that the data of the (first) run have.

    `src_path` and `ref_path` name a parallel text of the user's own instead, scored as `files`.
    `checkpoint` applies to each run. Sources, references, translations and scores go to
    `eval/<split>-<decoding>/` in the first run's folder, if it can be written; for files of the user's own,
    a name made of the file's and of a digest stands for the split. With `reranking`, a run of the other
    direction chooses among the translations.

    Raises:
        UsageError: no run, no such split or checkpoint, or only one of the two files.
        DataError: the data are gone or are not those of the run; the files are not parallel.
    """
    if (src_path is None) != (ref_path is None):
        raise UsageError("--src and --ref go together: sources and their references, line by line")
    if src_path is not None and splits:
        raise UsageError("give either --split or --src and --ref, not both")
    system = System(
        run_dirs,
        checkpoint=checkpoint,
        backend=backend,
        device=device,
        threads=threads,
        search=search,
        reranking=reranking,
    )
    if src_path is not None and ref_path is not None:
        test_sets = [read_test_set(src_path, ref_path)]
    else:
        test_sets = split_test_sets(system.run, splits, data_dir=data_dir)
    assessments = {test_set.name: system.assess(test_set) for test_set in test_sets}
    write_card(system.run)
    return assessments


def split_test_sets(run: AnyRun, splits: Sequence[str], *, data_dir: Path | None) -> list[EvalSet]:
    """The test sets that `run`'s data have under the names `splits`, or else all of them.

    Raises:
        UsageError: there is no such split.
        DataError: the data are gone or are not those of the run.
    """
    otherwise = ", or let evaluate score files of your own (--src FILE --ref FILE)"
    prepared = open_prepared_of(run, data_dir, otherwise=otherwise)
    return [
        EvalSet(name, prepared.lines(name, "src"), prepared.lines(name, "tgt"), name, run.config.data)
        for name in chosen_splits(run, splits)
    ]


def chosen_splits(run: AnyRun, splits: Sequence[str]) -> Sequence[str]:
    """Those of `splits`, or else every test split of `run`'s data.

    Raises:
        UsageError: there is no such split.
    """
    known = run.config.data.splits
    chosen = splits or [name for name in known if name not in ("train", "val")]
    if not chosen:
        raise UsageError(f"{run.folder} has no test split; name one of {', '.join(known)} with --split")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise UsageError(f"unknown split '{unknown[0]}'; the run has {', '.join(known)}")
    return chosen


def read_test_set(src_path: Path, ref_path: Path) -> EvalSet:
    """The test set `files` in two files that align line by line.

    Raises:
        DataError: one cannot be read, they differ in length, or they are empty.
    """
    src, ref = read_bytes(src_path), read_bytes(ref_path)
    sources, refs = as_lines(src), as_lines(ref)
    check_aligned(ref_path, refs, src_path, sources)
    if not sources:
        raise DataError(f"{src_path}: empty; there is nothing to score")
    digest = sha256_bytes(sha256_bytes(src).encode() + sha256_bytes(ref).encode())
    stem = re.sub(r"[^\w.-]+", "_", src_path.stem).lstrip(".")
    return EvalSet("files", sources, refs, kept_as=f"{shortened_name(stem)}-{digest[:8]}")
