"""`compare`: whether one system is better than another on the same sentences, and where."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypedDict

from sacrebleu.metrics.base import Metric

from mt_cli.data.text_files import check_aligned, check_is_lines, read_text, scored_lines
from mt_cli.errors import UsageError
from mt_cli.evaluation.evaluate import System
from mt_cli.evaluation.scoring import (
    MAX_RESAMPLED,
    RESAMPLES,
    Metrics,
    make_metrics,
    sentence_scores,
    symptoms,
)
from mt_cli.evaluation.significance import (
    TRIALS,
    GroupTest,
    MetricTest,
    Outcome,
    group_tests,
    outcome_of,
    paired_tests,
)
from mt_cli.evaluation.test_sets import EvalChoice, EvalSet
from mt_cli.runs.opening import open_model
from mt_cli.runs.run import Recipe, Run, joined_by_seed
from mt_cli.text.language import base_language
from mt_cli.translation.options import DecodingOptions

log = logging.getLogger(__name__)


class Change(TypedDict):
    """A sentence that the two systems translate differently."""

    line: int
    """From 1."""
    source: str | None
    ref: str
    baseline_hyp: str
    hyp: str
    baseline_chrf: float
    """chrF2 of the one sentence."""
    chrf: float
    difference: float
    """System minus baseline, in chrF2."""


@dataclass(frozen=True)
class Contrast:
    """A system compared with the baseline."""

    name: str
    """The run folder or file, as given by the user."""
    recipe: Recipe | None
    """None for a file."""
    outcome: Outcome
    tests: tuple[MetricTest, ...]
    """For BLEU, chrF2 and TER."""
    changes: list[Change]
    """Every sentence with a different translation, the largest change first."""


@dataclass(frozen=True)
class Comparison:
    """Systems compared with the first one on a test set; `compare --json` prints it."""

    test_set: str
    n: int
    """Number of sentences."""
    baseline: str
    """The run folder or file, as given by the user."""
    resamples: int
    trials: int
    systems: list[Contrast]
    """One for each system after the first, in order."""

    @property
    def groups(self) -> list[list[Contrast]]:
        """The systems, grouped: trainings that differ only in their seed are together."""
        return joined_by_seed(self.systems, [each.recipe for each in self.systems])


@dataclass(frozen=True)
class GroupComparison:
    """Several trainings of a system compared with as many of the baseline, on one test set."""

    test_set: str
    n: int
    baseline: list[str]
    system: list[str]
    tests: tuple[GroupTest, ...]


def compare(
    *systems: str | PathLike[str],
    splits: str | Sequence[str] = (),
    src: str | PathLike[str] | None = None,
    ref: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    data: str | PathLike[str] | None = None,
    **options: object,
) -> dict[str, Comparison]:
    """`compare_systems` for Python; `options` are those of `Translator.load`."""
    choice = EvalChoice.of(splits, src, ref, data)
    return compare_systems(list(map(Path, systems)), DecodingOptions.of(options), choice)


def compare_systems(
    paths: Sequence[Path], options: DecodingOptions, choice: EvalChoice
) -> dict[str, Comparison]:
    """Compare systems with the first of `paths`, by test set.

    Systems are run folders, which translate now, or files of translations. Splits come from the
    first run's data. If the user names test files, runs need the sources too.

    Raises:
        UsageError: fewer than two systems, an unknown split, or files without references.
        DataError: files do not align line by line, or the data is missing.
    """
    if len(paths) < 2:
        raise UsageError("compare needs at least two systems; the first is the baseline")
    recipes = [open_model(path).recipe if path.is_dir() else None for path in paths[1:]]
    comparisons = {}
    for test_set, (baseline, *systems), metrics in _translated(paths, options, choice):
        refs = test_set.refs
        # sacreBLEU keeps a number in memory for each sentence of each resample.
        n = len(refs[0])
        share = min(1.0, MAX_RESAMPLED / n)
        resamples = max(100, round(RESAMPLES * share))
        trials = max(100, round(TRIALS * share))
        log.info("%s: testing with %d resamples and %d trials", test_set.name, resamples, trials)
        for symptom in symptoms(baseline, refs[0]):
            log.warning("%s: %s", test_set.name, symptom)
        tests = paired_tests(baseline, systems, refs, metrics, resamples=resamples, trials=trials)
        contrasts = []
        for path, recipe, hyps, of_system in zip(paths[1:], recipes, systems, tests, strict=True):
            sources = test_set.sources or None
            changes = find_changes(baseline, hyps, refs, sources, metrics["chrF2"])
            changes.sort(key=lambda change: -abs(change["difference"]))
            outcome: Outcome = outcome_of(of_system) if changes else "identical"
            contrasts.append(Contrast(str(path), recipe, outcome, of_system, changes))
        comparisons[test_set.name] = Comparison(
            test_set.name, n, str(paths[0]), resamples, trials, contrasts
        )
    return comparisons


def compare_groups(
    baseline: Sequence[Path],
    system: Sequence[Path],
    options: DecodingOptions,
    choice: EvalChoice,
) -> dict[str, GroupComparison]:
    """Compare several trainings of a system (with different seeds) with as many of the baseline.

    Raises as `compare_systems` does.
    """
    if len(baseline) != len(system) or len(baseline) < 2:
        raise UsageError(
            "--with needs as many runs before it as after it, at least two each; found "
            f"{len(baseline)} and {len(system)}"
        )
    if len({*baseline}) < len(baseline) or len({*system}) < len(system):
        raise UsageError("--with: the same run is given twice; name each training once")
    comparisons = {}
    num_baseline = len(baseline)
    for test_set, hyps, metrics in _translated([*baseline, *system], options, choice):
        tests = group_tests(hyps[:num_baseline], hyps[num_baseline:], test_set.refs, metrics)
        comparisons[test_set.name] = GroupComparison(
            test_set.name,
            len(test_set.refs[0]),
            list(map(str, baseline)),
            list(map(str, system)),
            tests,
        )
    return comparisons


def _translated(
    paths: Sequence[Path], options: DecodingOptions, choice: EvalChoice
) -> Iterator[tuple[EvalSet, list[list[str]], Metrics]]:
    """Each test set, the translations of each system in `paths`, and the metrics to use."""
    systems = {}
    for path in paths:
        if path.is_dir() or not path.exists():  # a pipe also counts as a file of translations
            systems[path] = System([path], options)
    lang = ""
    lowercase = False
    if systems:
        directions = {path: _direction(system.run) for path, system in systems.items()}
        if len({*directions.values()}) > 1:
            raise UsageError("; ".join(f"{path}: {each}" for path, each in directions.items()))
        first = next(iter(systems.values()))
        data = first.run.config.data
        lang = data.tgt_lang
        lowercase = data.lowercase
        test_sets = first.test_sets(choice)
    else:
        files = choice.files(needs_sources=False)
        if files is None:
            raise UsageError("to compare files of translations, give the references: --ref FILE")
        test_sets = [files]
    has_files = len(systems) < len(set(paths))
    if has_files and choice.noise:
        raise UsageError("--noise works only with runs, not with files of translations")
    if has_files and len(test_sets) > 1:
        names = ", ".join(each.name for each in test_sets)
        raise UsageError(f"a file holds translations of one split; choose it with --split: {names}")
    for test_set in test_sets:
        hyps_of = {}
        for path in dict.fromkeys(paths):  # without duplicates: a pipe can be read only once
            if path in systems:
                hyps_of[path] = systems[path].evaluate(test_set).hyps
            else:
                hyps_of[path] = _read_hyps(path, test_set)
        metrics = make_metrics(test_set.refs[0], lang, lowercase=lowercase)
        yield test_set, [hyps_of[path] for path in paths], metrics


def find_changes(
    baseline: Sequence[str],
    hyps: Sequence[str],
    refs: Sequence[Sequence[str]],
    sources: Sequence[str] | None,
    chrf: Metric,
) -> list[Change]:
    """The sentences whose translations differ between `baseline` and `hyps`, in order."""
    changed = [i for i in range(len(hyps)) if baseline[i] != hyps[i]]
    changed_refs = []
    for of_all in refs:
        changed_refs.append([of_all[i] for i in changed])
    before = sentence_scores(chrf, [baseline[i] for i in changed], changed_refs)
    after = sentence_scores(chrf, [hyps[i] for i in changed], changed_refs)
    changes: list[Change] = []
    for i, old, new in zip(changed, before, after, strict=True):
        changes.append(
            {
                "line": i + 1,
                "source": sources[i] if sources else None,
                "ref": refs[0][i],
                "baseline_hyp": baseline[i],
                "hyp": hyps[i],
                "baseline_chrf": old,
                "chrf": new,
                "difference": new - old,
            }
        )
    return changes


def _direction(run: Run) -> str:
    data = run.config.data
    return f"{base_language(data.src_lang)} to {base_language(data.tgt_lang)}"


def _read_hyps(path: Path, test_set: EvalSet) -> list[str]:
    check_is_lines(path)
    hyps = scored_lines(read_text(path), path)
    check_aligned(path, hyps, f"the reference of '{test_set.name}'", test_set.refs[0])
    return hyps
