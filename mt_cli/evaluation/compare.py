"""`compare`: is one system better than another on the same sentences, and where?"""

import logging
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypedDict

from mt_cli.data.encoded import lines_path
from mt_cli.data.files import read_text, scored_lines
from mt_cli.errors import DataError, UsageError
from mt_cli.evaluation.evaluate import System
from mt_cli.evaluation.scoring import MAX_RESAMPLED, RESAMPLES, sentence_chrf
from mt_cli.evaluation.significance import TRIALS, MetricTest, Outcome, judge, paired_tests
from mt_cli.evaluation.symptoms import symptoms
from mt_cli.evaluation.test_sets import EvalChoice, EvalSet
from mt_cli.runs.opening import open_prepared_of
from mt_cli.runs.run import ExportedModel, ModelFolder, Run
from mt_cli.text.normalize import decode_line, normalize
from mt_cli.translation.lines import check_aligned
from mt_cli.translation.options import DecodingOptions

log = logging.getLogger(__name__)

WORD = re.compile(r"\w+")
LENGTHS = (5, 10, 15, 20, 30, 50)
"""Most words of a sentence in each bucket; one more bucket has all that is longer."""
UNSEEN = (0, 1, 2)
"""Words of a sentence that training never showed; one more bucket has all that have more."""


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


class Bucket(TypedDict):
    """Wins and losses among sentences of one kind, by sentence chrF2."""

    label: str
    """Such as `6-10` words, or `51+`."""
    n: int
    wins: int
    losses: int
    ties: int
    """Sentences that are translated the same, or as well."""
    mean_difference: float
    """Of sentence chrF2, in which a sentence that did not change counts as 0."""


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


def words_of(line: str) -> list[str]:
    """The words of `line`, without case and punctuation."""
    return WORD.findall(line.casefold())


def buckets(
    sizes: Sequence[int], changes: Iterable[Change], *, tops: Sequence[int]
) -> list[Bucket]:
    """Wins and losses by the size of each line: a bucket for each range that has a line."""
    gains = {change.line - 1: change.difference for change in changes}
    ranges: list[list[float]] = [[] for _ in range(len(tops) + 1)]
    for place, size in enumerate(sizes):
        ranges[bisect_left(tops, size)].append(gains.get(place, 0.0))
    filled = []
    for number, found in enumerate(ranges):
        bottom = tops[number - 1] + 1 if number else 0
        top = tops[number] if number < len(tops) else None
        label = f"{bottom}-{top}"
        if top is None:
            label = f"{bottom}+"
        elif bottom == top:
            label = str(top)
        wins = sum(gain > 0 for gain in found)
        losses = sum(gain < 0 for gain in found)
        if found:
            filled.append(
                Bucket(
                    label=label,
                    n=len(found),
                    wins=wins,
                    losses=losses,
                    ties=len(found) - wins - losses,
                    mean_difference=sum(found) / len(found),
                )
            )
    return filled


@dataclass(frozen=True)
class Contrast:
    """A system against the baseline."""

    name: str
    """As the user named it: a run folder or a file."""
    outcome: Outcome
    verdict: str
    """The same in plain English, with its evidence."""
    tests: tuple[MetricTest, ...]
    """BLEU, chrF2, TER."""
    by_length: list[Bucket]
    """By words of the source, or of the reference where there is no source."""
    by_unseen_words: list[Bucket] | None
    """By words of the source that training never showed; none where the training data are not
    known.
    """
    caveat: str | None
    """What the tests cannot know of two runs; none of files of translations."""
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

    Runs translate, unless the translations of this very checkpoint and search are kept in their
    folder. Splits are of the first run's data. Of files, runs need the sources too.

    Raises:
        UsageError: fewer than two systems, no such split, or files without a reference.
        DataError: files that do not align line by line, or data that are gone.
    """
    if len(paths) < 2:
        raise UsageError("compare needs two systems at least: first the baseline, then another")
    if choice.ref is not None and (gone := [path for path in paths if not path.exists()]):
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
    unseen = None if first is None else unseen_words(first.run, test_sets, data_dir=choice.data)
    found = {}
    for test_set in test_sets:
        hyps_of = {}
        for path in dict.fromkeys(paths):  # once each: a pipe can be read only once
            if path in systems:
                hyps_of[path] = systems[path].hyps_of(test_set)
            else:
                hyps_of[path] = _read_hyps(path, test_set)
        entries = []
        for path in paths:
            caveat = caveat_of(systems.get(paths[0]), systems.get(path))
            entries.append(Entry(str(path), hyps_of[path], caveat))
        found[test_set.name] = compare_translations(
            test_set,
            entries[0],
            entries[1:],
            lang="" if first is None else first.run.config.data.tgt_lang,
            lowercase=first is not None and first.run.config.data.lowercase,
            unseen=unseen,
            resamples=resamples,
            trials=trials,
        )
    return found


def _test_sets(choice: EvalChoice, first: System | None) -> list[EvalSet]:
    """The chosen test sets; splits are of the data of `first`, the first run, if there is one."""
    if first is not None:
        return first.test_sets(choice, may_be_kept=True)
    files = choice.files(needs_sources=False)
    if files is None:
        raise UsageError("files of translations need their references; name them with --ref FILE")
    return [files]


def caveat_of(baseline: System | None, system: System | None) -> str | None:
    """What tests on one training of each run cannot know; None if one is a file."""
    if baseline is None or system is None:
        return None
    return (
        "each run is one training: the tests cannot tell whether other seeds would give the same "
        "result"
    )


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


def unseen_words(
    model: Run | ExportedModel, test_sets: Sequence[EvalSet], *, data_dir: Path | None
) -> frozenset[str] | None:
    """Words of the sources that are not in the training data; None if those are not here."""
    try:
        prepared = open_prepared_of(model, data_dir)
        unseen: set[str] = set()
        for test_set in test_sets:
            for line in test_set.sources:
                unseen.update(words_of(normalize(line)))
        with lines_path(prepared.folder, "train", "src").open("rb") as lines:
            for raw in lines:  # however large: only words of the test sets are held
                unseen.difference_update(words_of(normalize(decode_line(raw))))
    except (DataError, OSError) as error:
        log.info("words that training never showed are not counted: %s", error)
        return None
    return frozenset(unseen)


@dataclass(frozen=True)
class Entry:
    """A system in a comparison, with its translations of the test set."""

    name: str
    hyps: Sequence[str]
    caveat: str | None = None
    """What to know when it is compared with the baseline."""


def compare_translations(
    test_set: EvalSet,
    baseline: Entry,
    others: Sequence[Entry],
    *,
    lang: str,
    lowercase: bool,
    unseen: frozenset[str] | None,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> Comparison:
    """Compare `others` with the `baseline` on one test set.

    `unseen` has the words of its sources that training never showed, if that is known.
    """
    # sacreBLEU holds a number for each sentence of each resample.
    share = min(1.0, MAX_RESAMPLED / len(test_set.refs))
    resamples = min(resamples, max(100, round(resamples * share)))
    trials = min(trials, max(100, round(trials * share)))
    log.info("%s: tests with %d resamples and %d trials", test_set.name, resamples, trials)
    refs = test_set.refs
    sources = test_set.sources or None
    for symptom in symptoms(baseline.hyps, refs):
        log.warning("%s: %s", test_set.name, symptom)
    tests = paired_tests(
        baseline.hyps,
        [other.hyps for other in others],
        refs,
        lang=lang,
        lowercase=lowercase,
        resamples=resamples,
        trials=trials,
    )
    contrasts = []
    for other, of_system in zip(others, tests, strict=True):
        changes = find_changes(baseline.hyps, other.hyps, refs, sources, lowercase=lowercase)
        by_unseen = None
        if sources is not None and unseen is not None:
            sizes = [sum(word in unseen for word in words_of(line)) for line in sources]
            by_unseen = buckets(sizes, changes, tops=UNSEEN)
        outcome, verdict = judge(
            other.name, baseline.name, of_system, num_changed=len(changes), trials=trials
        )
        by_size = buckets([len(line.split()) for line in sources or refs], changes, tops=LENGTHS)
        changes.sort(key=lambda change: -abs(change.difference))
        contrasts.append(
            Contrast(
                name=other.name,
                outcome=outcome,
                verdict=verdict,
                tests=of_system,
                by_length=by_size,
                by_unseen_words=by_unseen,
                caveat=other.caveat,
                changes=changes,
            )
        )
    return Comparison(test_set.name, len(refs), baseline.name, resamples, trials, contrasts)
