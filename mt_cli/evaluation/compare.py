"""`compare`: is one system better than another on the same sentences, and where?"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from mt_cli.data.files import read_text, scored_lines
from mt_cli.errors import UsageError
from mt_cli.evaluation.evaluate import System
from mt_cli.evaluation.scoring import MAX_RESAMPLED, RESAMPLES, sentence_chrf, symptoms
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
from mt_cli.runs.opening import model_folder
from mt_cli.runs.run import ModelFolder
from mt_cli.translation.lines import check_aligned
from mt_cli.translation.options import DecodingOptions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
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
    """What the sentence gained, in chrF2."""


@dataclass(frozen=True)
class Contrast:
    """A system against the baseline."""

    name: str
    """As the user named it: a run folder or a file."""
    outcome: Outcome
    tests: tuple[MetricTest, ...]
    """BLEU, chrF2, TER."""
    changes: list[Change]
    """Every sentence that is translated differently, what changed most first."""


@dataclass(frozen=True)
class Comparison:
    """Systems against the first of them, on one test set; `compare --json` prints it."""

    test_set: str
    n: int
    """Sentences."""
    baseline: str
    """As the user named it."""
    resamples: int
    trials: int
    systems: list[Contrast]
    """One for each system but the first, in their order."""


@dataclass(frozen=True)
class GroupComparison:
    """Several trainings of one system against as many of another, on one test set."""

    test_set: str
    n: int
    baseline: list[str]
    system: list[str]
    tests: tuple[GroupTest, ...]


def compare(
    *systems: str | PathLike[str],
    splits: str | Sequence[str] = (),
    src: str | PathLike[str] | None = None,
    ref: str | PathLike[str] | None = None,
    data: str | PathLike[str] | None = None,
    **options: object,
) -> dict[str, Comparison]:
    """`compare_systems` for Python; `options` are those of `Translator.load`."""
    choice = EvalChoice.of(splits, src, ref, data)
    return compare_systems(list(map(Path, systems)), DecodingOptions.of(options), choice)


def compare_systems(
    paths: Sequence[Path],
    options: DecodingOptions,
    choice: EvalChoice,
    *,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> dict[str, Comparison]:
    """Compare run folders or files of translations with the first of `paths`, by test set.

    Runs translate. Splits are of the first run's data. Of files, runs need the sources too.

    Raises:
        UsageError: fewer than two systems, no such split, or files without a reference.
        DataError: files that do not align line by line, or data that are gone.
    """
    if len(paths) < 2:
        raise UsageError("compare needs two systems at least: first the baseline, then another")
    found = {}
    for each in _translated(paths, options, choice):
        # sacreBLEU holds a number for each sentence of each resample.
        share = min(1.0, MAX_RESAMPLED / len(each.test_set.refs))
        found[each.test_set.name] = each.comparison(
            resamples=min(resamples, max(100, round(resamples * share))),
            trials=min(trials, max(100, round(trials * share))),
        )
    return found


def compare_groups(
    baseline: Sequence[Path],
    system: Sequence[Path],
    options: DecodingOptions,
    choice: EvalChoice,
    *,
    trials: int = TRIALS,
) -> dict[str, GroupComparison]:
    """Compare several trainings of a system, such as seeds, with as many of the baseline.

    Raises as `compare_systems` does.
    """
    if len(baseline) != len(system) or len(baseline) < 2:
        raise UsageError(
            f"--with compares as many trainings of both, two or more; found {len(baseline)} and "
            f"{len(system)}"
        )
    for group in (baseline, system):
        if len(set(group)) < len(group):
            raise UsageError("--with compares trainings; one is named twice")
    found = {}
    for each in _translated([*baseline, *system], options, choice):
        hyps = each.hyps
        tests = group_tests(
            hyps[: len(baseline)],
            hyps[len(baseline) :],
            each.test_set.refs,
            lang=each.lang,
            lowercase=each.lowercase,
            trials=trials,
        )
        found[each.test_set.name] = GroupComparison(
            each.test_set.name,
            len(each.test_set.refs),
            list(map(str, baseline)),
            list(map(str, system)),
            tests,
        )
    return found


@dataclass(frozen=True)
class _Translated:
    """A test set with the translations of each system."""

    test_set: EvalSet
    names: list[str]
    hyps: list[list[str]]
    lang: str
    """Of the references, if it is known."""
    lowercase: bool

    def comparison(self, *, resamples: int, trials: int) -> Comparison:
        """Each system against the first."""
        name, refs = self.test_set.name, self.test_set.refs
        log.info("%s: tests with %d resamples and %d trials", name, resamples, trials)
        baseline, *others = self.hyps
        for symptom in symptoms(baseline, refs):
            log.warning("%s: %s", name, symptom)
        tests = paired_tests(
            baseline,
            others,
            refs,
            lang=self.lang,
            lowercase=self.lowercase,
            resamples=resamples,
            trials=trials,
        )
        contrasts = []
        for system, hyps, of_system in zip(self.names[1:], others, tests, strict=True):
            sources = self.test_set.sources or None
            changes = find_changes(baseline, hyps, refs, sources, lowercase=self.lowercase)
            changes.sort(key=lambda change: -abs(change.difference))
            outcome: Outcome = outcome_of(of_system) if changes else "identical"
            contrasts.append(Contrast(system, outcome, of_system, changes))
        return Comparison(name, len(refs), self.names[0], resamples, trials, contrasts)


def _translated(
    paths: Sequence[Path], options: DecodingOptions, choice: EvalChoice
) -> Iterator[_Translated]:
    """The translations of each system in `paths`, by test set."""
    if choice.ref is not None and (gone := [p for p in paths if not model_folder(p).exists()]):
        raise UsageError(f"{gone[0]}: no such run folder, and no such file of translations")
    systems = {}
    for path in paths:
        if path.is_dir() or not path.exists():  # a pipe is a file of translations too
            systems[path] = System([path], options)
    first = next(iter(systems.values()), None)
    if first is not None:
        check_same_direction([system.run for system in systems.values()])
    test_sets = _test_sets(choice, first)
    has_files = len(systems) < len(set(paths))
    if has_files and choice.noise:
        raise UsageError("--noise needs runs: a file holds the translations of one test set")
    if has_files and len(test_sets) > 1:
        names = ", ".join(each.name for each in test_sets)
        raise UsageError(
            f"a file holds the translations of one split; say of which with --split: {names}"
        )
    for test_set in test_sets:
        hyps_of = {}
        for path in dict.fromkeys(paths):  # once each: a pipe can be read only once
            if path in systems:
                hyps_of[path] = systems[path].evaluate(test_set).hyps
            else:
                hyps_of[path] = _read_hyps(path, test_set)
        yield _Translated(
            test_set,
            list(map(str, paths)),
            [hyps_of[path] for path in paths],
            lang="" if first is None else first.run.config.data.tgt_lang,
            lowercase=first is not None and first.run.config.data.lowercase,
        )


def _test_sets(choice: EvalChoice, first: System | None) -> list[EvalSet]:
    """The chosen test sets; splits are of the data of `first`, the first run, if there is one."""
    if first is not None:
        return first.test_sets(choice)
    files = choice.files(needs_sources=False)
    if files is None:
        raise UsageError("files of translations need their references; name them with --ref FILE")
    return [files]


def find_changes(
    baseline: Sequence[str],
    hyps: Sequence[str],
    refs: Sequence[str],
    sources: Sequence[str] | None,
    *,
    lowercase: bool = False,
) -> list[Change]:
    """The sentences that `hyps` and `baseline` do not share, in order."""
    changed = [i for i in range(len(refs)) if baseline[i] != hyps[i]]
    changed_refs = [refs[i] for i in changed]
    before = sentence_chrf([baseline[i] for i in changed], changed_refs, lowercase=lowercase)
    after = sentence_chrf([hyps[i] for i in changed], changed_refs, lowercase=lowercase)
    changes = []
    for i, old, new in zip(changed, before, after, strict=True):
        changes.append(
            Change(
                line=i + 1,
                source=sources[i] if sources else None,
                ref=refs[i],
                baseline_hyp=baseline[i],
                hyp=hyps[i],
                baseline_chrf=old,
                chrf=new,
                difference=new - old,
            )
        )
    return changes


def check_same_direction(models: Sequence[ModelFolder]) -> None:
    """Make sure that all `models` translate between the same languages."""
    first = models[0]
    for other in models[1:]:
        if _direction(other) != _direction(first):
            raise UsageError(
                f"{other.folder} translates {_direction(other)}, but {first.folder} "
                f"{_direction(first)}; only runs of one direction can be compared"
            )


def _direction(model: ModelFolder) -> str:
    return f"{model.config.data.src_lang} to {model.config.data.tgt_lang}"


def _read_hyps(path: Path, test_set: EvalSet) -> list[str]:
    hyps = scored_lines(read_text(path), path)
    check_aligned(path, hyps, f"the reference of '{test_set.name}'", test_set.refs)
    return hyps
