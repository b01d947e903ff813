"""The `compare` command: is one system better than another on the same sentences, and where?

Joins systems, test sets, paired tests and changes; shows nothing itself.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from mt_cli.artefacts.exported_run import AnyRun
from mt_cli.artefacts.prepared import open_prepared_of
from mt_cli.artefacts.split_files import lines_path
from mt_cli.artefacts.text_files import as_lines, read_bytes
from mt_cli.config import Device
from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.machine.hardware import GIB
from mt_cli.machine.memory_limit import usable_memory
from mt_cli.stages.compare.comparison import Comparison, Contrast
from mt_cli.stages.evaluate import chosen_splits, read_test_set, split_test_sets
from mt_cli.stages.model_card import write_card
from mt_cli.stages.system import EvalSet, System
from mt_cli.text.normalize import decode_line, normalize
from mt_cli.translation.changes import by_length, by_unseen_words, find_changes, words_of
from mt_cli.translation.options import SearchOptions
from mt_cli.translation.significance import RESAMPLES, TRIALS, judge, memory_needed, paired_tests

log = logging.getLogger(__name__)


def compare_systems(
    paths: Sequence[Path],
    *,
    splits: Sequence[str] = (),
    src_path: Path | None = None,
    ref_path: Path | None = None,
    data_dir: Path | None = None,
    checkpoint: str = "best",
    device: Device = "auto",
    threads: int = 0,
    search: SearchOptions | None = None,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> dict[str, Comparison]:
    """Compare run folders or files of translations with the first of `paths`, by test set.

    Runs translate, unless the translations of this very checkpoint and search are kept in their folder. The
    test sets are the `splits` of the first run's data, by default every test split; or `ref_path`, whose
    sources `src_path` runs need and files do not.

    Raises:
        UsageError: fewer than two systems, no such split, or files without a reference.
        DataError: files that do not align line by line, or data that are gone.
    """
    if len(paths) < 2:
        raise UsageError("compare needs two systems at least: first the baseline, then another")
    if ref_path is not None and splits:
        raise UsageError("give either --split or --ref, not both")
    if src_path is not None and ref_path is None:
        raise UsageError("--src needs --ref: the references of its lines")
    for path in paths:
        if not path.exists() and ref_path is not None:
            raise UsageError(f"{path}: no such run folder, and no such file of translations")
    systems = {
        path: System([path], checkpoint=checkpoint, device=device, threads=threads, search=search)
        for path in paths
        if path.is_dir() or not path.exists()  # a pipe is a file of translations too
    }
    first = next(iter(systems.values()), None)
    if first is not None:
        check_same_direction([system.run for system in systems.values()])
    if ref_path is not None:
        test_sets = [_files(src_path, ref_path, has_runs=first is not None)]
    elif first is not None:
        test_sets = test_splits_of(first, splits, data_dir=data_dir)
    else:
        raise UsageError("files of translations need their references; name them with --ref FILE")
    if len(systems) < len(set(paths)) and len(test_sets) > 1:
        names = ", ".join(each.name for each in test_sets)
        raise UsageError(f"a file holds the translations of one split; say of which with --split: {names}")
    check_tests_fit(test_sets, resamples=resamples, trials=trials)
    unseen = None if first is None else unseen_words(first.run, test_sets, data_dir=data_dir)
    found = {}
    for test_set in test_sets:
        # A pipe can be read only once, even if it is named twice.
        hyps_of = {path: translations_of(path, systems.get(path), test_set) for path in dict.fromkeys(paths)}
        found[test_set.name] = compare_translations(
            test_set,
            [hyps_of[path] for path in paths],
            [str(path) for path in paths],
            lowercase=first is not None and first.run.config.data.lowercase,
            unseen=unseen,
            resamples=resamples,
            trials=trials,
        )
    return found


def _files(src_path: Path | None, ref_path: Path, *, has_runs: bool) -> EvalSet:
    """The user's own test set; without sources, its `sources` are empty."""
    if src_path is not None:
        return read_test_set(src_path, ref_path)
    if has_runs:
        raise UsageError("runs need something to translate; name the sources of --ref with --src FILE")
    refs = as_lines(read_bytes(ref_path))
    if not refs:
        raise DataError(f"{ref_path}: empty; there is nothing to compare")
    return EvalSet("files", [], refs, kept_as="files")


def check_tests_fit(
    test_sets: Sequence[EvalSet], *, resamples: int = RESAMPLES, trials: int = TRIALS
) -> None:
    """Make sure that there is memory for the tests of each of `test_sets`, before anything is translated.

    Raises:
        ResourceError: there is too little.
    """
    memory = usable_memory()
    for test_set in test_sets:
        needed = memory_needed(len(test_set.refs), resamples=resamples, trials=trials)
        if memory is not None and needed > memory:
            raise ResourceError(
                f"{test_set.name}: the tests of {len(test_set.refs):,} lines take {needed / GIB:.1f} GiB of "
                f"memory, and there are {memory / GIB:.1f}; lower --resamples and --trials, or compare fewer "
                "lines"
            )


def check_same_direction(runs: Sequence[AnyRun]) -> None:
    """Make sure that one test set suits all `runs`.

    Raises:
        UsageError: they do not translate between the same languages.
    """
    directions = {run.folder: f"{run.config.data.src_lang} to {run.config.data.tgt_lang}" for run in runs}
    (first, of_first), *others = directions.items()
    for other, of_other in others:
        if of_other != of_first:
            raise UsageError(
                f"{other} translates {of_other}, but {first} {of_first}; only runs of one direction can be "
                "compared"
            )


def test_splits_of(system: System, splits: Sequence[str], *, data_dir: Path | None) -> list[EvalSet]:
    """Test sets of `system`'s data; if those are gone, as `system` has kept them with its translations."""
    try:
        return split_test_sets(system.run, splits, data_dir=data_dir)
    except DataError:
        names = chosen_splits(system.run, splits)
        kept = [(name, found) for name in names if (found := system.kept(name)) is not None]
        if data_dir is not None or len(kept) < len(names):
            raise
        data = system.run.config.data
        return [EvalSet(name, found.sources, found.refs, name, data) for name, found in kept]


def translations_of(path: Path, system: System | None, test_set: EvalSet) -> list[str]:
    """Translations of `test_set`: of the file `path`, kept by `system`, or made by it now."""
    if system is None:
        hyps = as_lines(read_bytes(path))
        if len(hyps) != len(test_set.refs):
            raise DataError(
                f"{path}: {len(hyps)} lines, but '{test_set.name}' has {len(test_set.refs)} references; "
                "the files must align line by line"
            )
        return hyps
    kept = system.kept_hyps(test_set)
    if kept is not None:
        log.info("%s: %s as kept in %s", test_set.name, path, path / "eval")
        return kept
    log.info("%s: %s translates", test_set.name, path)
    hyps = system.assess(test_set).hyps
    write_card(system.run)
    return hyps


def unseen_words(
    run: AnyRun, test_sets: Sequence[EvalSet], *, data_dir: Path | None
) -> frozenset[str] | None:
    """Words of the sources that are not in `run`'s training data; none if those are not here."""
    try:
        prepared = open_prepared_of(run, data_dir)
        unseen = {word for each in test_sets for line in each.sources for word in words_of(normalize(line))}
        with lines_path(prepared.folder, "train", "src").open("rb") as lines:
            for line in lines:  # however large: only words of the test sets are held
                unseen.difference_update(words_of(normalize(decode_line(line))))
    except (DataError, OSError) as error:
        log.info("words that training never showed are not counted: %s", error)
        return None
    return frozenset(unseen)


def compare_translations(
    test_set: EvalSet,
    hyps: Sequence[Sequence[str]],
    names: Sequence[str],
    *,
    lowercase: bool,
    unseen: frozenset[str] | None,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> Comparison:
    """Everything of one test set; `hyps` has the translations of each of `names`, the baseline first."""
    baseline, *others = hyps
    log.info("%s: tests with %d resamples and %d trials", test_set.name, resamples, trials)
    tests = paired_tests(
        baseline,
        others,
        test_set.refs,
        lowercase=lowercase,
        resamples=resamples,
        trials=trials,
    )
    sources = test_set.sources or None
    contrasts = []
    for name, other, of_system in zip(names[1:], others, tests, strict=True):
        changes = find_changes(baseline, other, test_set.refs, sources, lowercase=lowercase)
        contrasts.append(
            Contrast(
                name,
                other,
                of_system,
                judge(name, names[0], of_system, num_changed=len(changes), trials=trials),
                tuple(sorted(changes, key=lambda change: -abs(change.difference))),
                by_length(sources or test_set.refs, changes),
                None if sources is None or unseen is None else by_unseen_words(sources, changes, unseen),
            )
        )  # fmt: skip
    return Comparison(
        test_set.name,
        names[0],
        sources,
        test_set.refs,
        baseline,
        resamples,
        trials,
        tuple(contrasts),
    )
