"""`compare`: is one system better than another on the same sentences, and where?

Paired tests over sentences, and over trainings.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from os import PathLike
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal, TypedDict, cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.significance import PairedTest, Result

from mt_cli.data.readers import check_aligned, check_is_lines, read_text, scored_lines
from mt_cli.errors import UsageError
from mt_cli.evaluation.evaluate import EvalChoice, EvalSet, System
from mt_cli.evaluation.scoring import (
    MAX_RESAMPLED,
    METRIC_NAMES,
    RESAMPLES,
    MetricName,
    bleu_tokenizer,
    make_metrics,
    sentence_chrf,
    symptoms,
)
from mt_cli.runs.run import Recipe, Run, open_model
from mt_cli.text.language import base_language
from mt_cli.translation.options import DecodingOptions

log = logging.getLogger(__name__)
TRIALS = 10_000
"""Of the approximate randomization: sacreBLEU's own number."""
SEED = 12345
"""Of the approximate randomization: sacreBLEU's own."""
ROUNDING = 1e-9
"""Differences this close are equal."""
ALPHA = 0.05
"""A difference is shown if chance makes one as large less often than this."""
Outcome = Literal["better", "worse", "unclear", "identical"]


@dataclass(frozen=True)
class Estimate:
    """A system's score, and the mean and half width of its 95 % bootstrap interval."""

    score: float
    mean: float
    half_width: float

    @classmethod
    def of(cls, result: Result) -> "Estimate":
        """What sacreBLEU found."""
        return cls(float(result.score), float(result.mean or 0), float(result.ci or 0))


@dataclass(frozen=True)
class MetricTest:
    """A system against the baseline, by one metric."""

    metric: MetricName
    baseline: Estimate
    system: Estimate
    difference: float
    """The system's score less the baseline's."""
    bootstrap_p: float | None
    """By paired bootstrap (Koehn 2004); None where the scores are equal."""
    randomization_p: float | None
    """By paired randomization (Riezler and Maxwell 2005); none as above."""
    bootstrap_signature: str
    randomization_signature: str

    @property
    def outcome(self) -> Literal["better", "worse"]:
        """Which score the system has; less TER is better."""
        return "better" if (self.difference < 0) == (self.metric == "TER") else "worse"

    @property
    def is_significant(self) -> bool:
        """Whether the randomization test shows a difference."""
        return self.randomization_p is not None and self.randomization_p < ALPHA


@dataclass(frozen=True)
class Spread:
    """The scores of several trainings of one system."""

    scores: list[float]
    mean: float
    deviation: float
    """Their standard deviation, of a sample."""


@dataclass(frozen=True)
class GroupTest:
    """Several trainings of a system against as many of the baseline, by one metric."""

    metric: MetricName
    baseline: Spread
    system: Spread
    difference: float
    """Of the means."""
    seeds_p: float
    """How often the runs, dealt into two groups at random, differ as much: a permutation test."""
    sentences_p: float
    """By paired randomization of the sentences, of all runs at once."""
    signature: str

    @property
    def is_significant(self) -> bool:
        """Whether the test of the sentences shows a difference."""
        return bool(self.sentences_p < ALPHA)


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
    """What the sentence gained, in chrF2."""


@dataclass(frozen=True)
class Contrast:
    """A system against the baseline."""

    name: str
    """As the user named it: a run folder or a file."""
    recipe: Recipe | None
    """None for a file."""
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
    """Compare run folders or files of translations with the first of `paths`, by test set.

    Runs translate. Splits are of the first run's data. Of files, runs need the sources too.

    Raises:
        UsageError: fewer than two systems, no such split, or files without a reference.
        DataError: files that do not align line by line, or data that are gone.
    """
    if len(paths) < 2:
        raise UsageError("compare needs two systems at least: first the baseline, then another")
    found = {}
    for test_set, (baseline, *others), text in _translated(paths, options, choice):
        refs = test_set.refs
        # sacreBLEU holds a number for each sentence of each resample.
        n = len(refs[0])
        share = min(1.0, MAX_RESAMPLED / n)
        resamples = max(100, round(RESAMPLES * share))
        trials = max(100, round(TRIALS * share))
        log.info("%s: tests with %d resamples and %d trials", test_set.name, resamples, trials)
        for symptom in symptoms(baseline, refs[0]):
            log.warning("%s: %s", test_set.name, symptom)
        tests = paired_tests(baseline, others, refs, **text, resamples=resamples, trials=trials)
        contrasts = []
        for path, hyps, of_system in zip(paths[1:], others, tests, strict=True):
            sources = test_set.sources or None
            changes = find_changes(baseline, hyps, refs, sources, lowercase=text["lowercase"])
            changes.sort(key=lambda change: -abs(change["difference"]))
            outcome: Outcome = outcome_of(of_system) if changes else "identical"
            recipe = None if path.is_file() else open_model(path).recipe
            contrasts.append(Contrast(str(path), recipe, outcome, of_system, changes))
        found[test_set.name] = Comparison(
            test_set.name, n, str(paths[0]), resamples, trials, contrasts
        )
    return found


def compare_groups(
    baseline: Sequence[Path],
    system: Sequence[Path],
    options: DecodingOptions,
    choice: EvalChoice,
) -> dict[str, GroupComparison]:
    """Compare several trainings of a system, such as seeds, with as many of the baseline.

    Raises as `compare_systems` does.
    """
    if len(baseline) != len(system) or len(baseline) < 2:
        raise UsageError(
            "--with needs as many runs as the baseline, at least two; found "
            f"{len(baseline)} and {len(system)}"
        )
    if len({*baseline}) < len(baseline) or len({*system}) < len(system):
        raise UsageError("--with compares trainings; one is named twice")
    found = {}
    num_baseline = len(baseline)
    for test_set, hyps, text in _translated([*baseline, *system], options, choice):
        tests = group_tests(hyps[:num_baseline], hyps[num_baseline:], test_set.refs, **text)
        found[test_set.name] = GroupComparison(
            test_set.name,
            len(test_set.refs[0]),
            list(map(str, baseline)),
            list(map(str, system)),
            tests,
        )
    return found


class Text(TypedDict):
    """What is known of the references."""

    lang: str
    lowercase: bool


def _translated(
    paths: Sequence[Path], options: DecodingOptions, choice: EvalChoice
) -> Iterator[tuple[EvalSet, list[list[str]], Text]]:
    """Each test set, the translations of each system in `paths`, and what the references are."""
    systems = {}
    for path in paths:
        if path.is_dir() or not path.exists():  # a pipe is a file of translations too
            systems[path] = System([path], options)
    text: Text = {"lang": "", "lowercase": False}
    if systems:
        directions = {path: _direction(system.run) for path, system in systems.items()}
        if len({*directions.values()}) > 1:
            raise UsageError("; ".join(f"{path}: {each}" for path, each in directions.items()))
        first = next(iter(systems.values()))
        data = first.run.config.data
        text = {"lang": data.tgt_lang, "lowercase": data.lowercase}
        test_sets = first.test_sets(choice)
    else:
        files = choice.files(needs_sources=False)
        if files is None:
            raise UsageError("files of translations need references; name them with --ref FILE")
        test_sets = [files]
    has_files = len(systems) < len(set(paths))
    if has_files and choice.noise:
        raise UsageError("--noise needs runs: a file holds the translations of one test set")
    if has_files and len(test_sets) > 1:
        names = ", ".join(each.name for each in test_sets)
        raise UsageError(f"a file has translations of one split; say which with --split: {names}")
    for test_set in test_sets:
        hyps_of = {}
        for path in dict.fromkeys(paths):  # once each: a pipe can be read only once
            if path in systems:
                hyps_of[path] = systems[path].evaluate(test_set).hyps
            else:
                hyps_of[path] = _read_hyps(path, test_set)
        yield test_set, [hyps_of[path] for path in paths], text


def find_changes(
    baseline: Sequence[str],
    hyps: Sequence[str],
    refs: Sequence[Sequence[str]],
    sources: Sequence[str] | None,
    *,
    lowercase: bool = False,
) -> list[Change]:
    """The sentences that `hyps` and `baseline` do not share, in order."""
    changed = [i for i in range(len(hyps)) if baseline[i] != hyps[i]]
    changed_refs = []
    for of_all in refs:
        changed_refs.append([of_all[i] for i in changed])
    before = sentence_chrf([baseline[i] for i in changed], changed_refs, lowercase=lowercase)
    after = sentence_chrf([hyps[i] for i in changed], changed_refs, lowercase=lowercase)
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


# Tests


def paired_tests(
    baseline: Sequence[str],
    systems: Sequence[Sequence[str]],
    refs: Sequence[Sequence[str]],
    *,
    lang: str = "",
    lowercase: bool = False,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> list[tuple[MetricTest, ...]]:
    """BLEU, chrF2 and TER of each of `systems` against `baseline`; `lang` is as in `score`.

    Each of `refs` has a reference for each line.

    The bootstrap is sacreBLEU's. Its randomization leaves out differences that are as large as the
    one that was found, and so makes too much of few sentences; `Randomization` is ours.
    """
    named: list[tuple[str, Sequence[str]]] = [("0", baseline)]
    named += [(str(i), hyps) for i, hyps in enumerate(systems, 1)]
    metrics = _metrics(refs, lang, lowercase)
    by_name = cast("Mapping[str, Metric]", metrics)
    bootstrap = PairedTest(
        named, by_name, list(map(list, refs)), test_type="bs", n_samples=resamples
    )
    signatures, results = cast("tuple[dict[str, Signature], dict[str, list[Any]]]", bootstrap())
    tests = []
    for number, hyps in enumerate(systems, 1):
        of_system = []
        for name in METRIC_NAMES:
            before = Estimate.of(results[name][0])
            after = Estimate.of(results[name][number])
            randomization = Randomization(metrics[name], [baseline], [hyps], refs)
            has_difference = before.score != after.score  # otherwise nothing is left to test
            of_system.append(
                MetricTest(
                    metric=name,
                    baseline=before,
                    system=after,
                    difference=after.score - before.score,
                    bootstrap_p=float(results[name][number].p_value) if has_difference else None,
                    randomization_p=randomization.p(trials=trials) if has_difference else None,
                    bootstrap_signature=signatures[name].format(),
                    randomization_signature=randomization.signature(trials=trials),
                )
            )
        tests.append(tuple(of_system))
    return tests


def _metrics(refs: Sequence[Sequence[str]], lang: str, lowercase: bool) -> dict[MetricName, Metric]:
    bleu, chrf, ter = make_metrics(bleu_tokenizer(refs[0], lang), lowercase)
    return {"BLEU": bleu, "chrF2": chrf, "TER": ter}


class Randomization:
    """Paired randomization (Riezler and Maxwell 2005) of one or several runs of two systems.

    If the systems do not differ, each sentence's translations might as well be swapped between
    them, all runs' at once. How often is the difference of the mean scores then as large as the one
    that was found? Where few sentences differ, all ways to swap are counted, otherwise a sample.
    Letters: R runs, L lines, S sufficient statistics, W ways to swap.
    """

    def __init__(
        self,
        metric: Metric,
        baseline: Sequence[Sequence[str]],
        system: Sequence[Sequence[str]],
        refs: Sequence[Sequence[str]],
    ) -> None:
        """`baseline` and `system` have the translations of as many runs each."""
        self._metric = metric
        before = _statistics(metric, baseline, refs)  # (R, L, S)
        after = _statistics(metric, system, refs)
        differs = (before != after).any(axis=(0, 2))  # (L,)
        self.num_differing = int(differs.sum())
        """Lines whose statistics differ."""
        self._before = before[:, differs]
        self._after = after[:, differs]
        self._same = before[:, ~differs].sum(1)  # (R, S): of all other lines
        self._found = abs(self._difference(np.zeros(self.num_differing, bool)))

    def p(self, *, trials: int) -> float:
        """The share of the ways to swap in which the difference is at least as large."""
        is_exact = self._is_exact(trials)
        if is_exact:
            ways = np.arange(2**self.num_differing)[:, None] >> np.arange(self.num_differing) & 1
        else:
            rng = np.random.default_rng(SEED)
            ways = rng.integers(2, size=(trials, self.num_differing))
        differences = [abs(self._difference(way)) for way in ways.astype(bool)]
        num_as_large = sum(each >= self._found - ROUNDING for each in differences)
        # A sample is taken to hold the difference that was found, too.
        return num_as_large / len(ways) if is_exact else (num_as_large + 1) / (trials + 1)

    def signature(self, *, trials: int) -> str:
        """SacreBLEU's signature of the metric, with how the ways to swap were chosen."""
        signature = self._metric.get_signature()
        signature.update("ar", "exact" if self._is_exact(trials) else trials)
        signature.update("seed", SEED)
        return str(signature.format())

    def _is_exact(self, trials: int) -> bool:
        return 2**self.num_differing <= trials

    def _difference(self, is_swapped: NDArray[np.bool_]) -> float:
        """The system's mean score less the baseline's, after lines are swapped as `is_swapped`."""
        chosen = is_swapped[:, None]
        before = self._same + np.where(chosen, self._after, self._before).sum(1)  # (R, S)
        after = self._same + np.where(chosen, self._before, self._after).sum(1)
        return self._mean_score(after) - self._mean_score(before)

    def _mean_score(self, of_runs: NDArray[np.float64]) -> float:
        scores = [self._metric._compute_score_from_stats(each).score for each in of_runs]
        return sum(scores) / len(scores)


def _statistics(
    metric: Metric, runs: Sequence[Sequence[str]], refs: Sequence[Sequence[str]]
) -> NDArray[np.float64]:
    """The sufficient statistics of each line of each run, (R, L, S)."""
    of_lines = list(map(list, refs))
    return np.array(
        [metric._extract_corpus_statistics(list(hyps), of_lines) for hyps in runs], np.float64
    )


def group_tests(
    baseline: Sequence[Sequence[str]],
    system: Sequence[Sequence[str]],
    refs: Sequence[Sequence[str]],
    *,
    lang: str = "",
    lowercase: bool = False,
    trials: int = TRIALS,
) -> tuple[GroupTest, ...]:
    """BLEU, chrF2 and TER of the translations of several runs against those of as many others."""
    tests = []
    for name, metric in _metrics(refs, lang, lowercase).items():
        scores = [
            float(metric.corpus_score(list(hyps), list(map(list, refs))).score)
            for hyps in (*baseline, *system)
        ]
        before = _spread(scores[: len(baseline)])
        after = _spread(scores[len(baseline) :])
        randomization = Randomization(metric, baseline, system, refs)
        tests.append(
            GroupTest(
                metric=name,
                baseline=before,
                system=after,
                difference=after.mean - before.mean,
                seeds_p=permutation_p(before.scores, after.scores),
                sentences_p=randomization.p(trials=trials),
                signature=randomization.signature(trials=trials),
            )
        )
    return tuple(tests)


def _spread(scores: list[float]) -> Spread:
    return Spread(scores, mean(scores), stdev(scores))


def permutation_p(one: Sequence[float], other: Sequence[float]) -> float:
    """How often the means differ as much when all scores are dealt into two such groups.

    An exact permutation test (Fisher 1935).
    """
    scores = [*one, *other]
    found = abs(mean(one) - mean(other))
    num_as_large = 0
    num_ways = 0
    for places in combinations(range(len(scores)), len(one)):
        first = [scores[i] for i in places]
        second = [score for i, score in enumerate(scores) if i not in places]
        num_as_large += abs(mean(first) - mean(second)) >= found - ROUNDING
        num_ways += 1
    return num_as_large / num_ways


def outcome_of(tests: Sequence[MetricTest]) -> Outcome:
    """What the `tests` of a system show, by BLEU."""
    bleu = tests[0]
    return bleu.outcome if bleu.is_significant else "unclear"
