"""Significance tests: paired over sentences, and by permutation over trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, stdev
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.significance import PairedTest, Result

from mt_cli.evaluation.scoring import RESAMPLES, MetricName, Metrics

TRIALS = 10_000
"""Trials of the approximate randomization: sacreBLEU's default."""
SEED = 12345
"""Seed of the approximate randomization: sacreBLEU's default."""
ROUNDING = 1e-9
"""Differences this close count as equal."""
ALPHA = 0.05
"""Significance level."""
Outcome = Literal["better", "worse", "unclear", "identical"]


@dataclass(frozen=True)
class Estimate:
    """A system's score, and the mean and half width of its 95 % bootstrap interval."""

    score: float
    mean: float
    half_width: float

    @classmethod
    def of(cls, result: Result) -> "Estimate":
        """Convert sacreBLEU's result."""
        return cls(float(result.score), float(result.mean or 0), float(result.ci or 0))


@dataclass(frozen=True)
class MetricTest:
    """The tests of a system against the baseline by one metric."""

    metric: MetricName
    baseline: Estimate
    system: Estimate
    difference: float
    """System minus baseline."""
    bootstrap_p: float | None
    """p of the paired bootstrap (Koehn 2004); None if the scores are equal."""
    randomization_p: float | None
    """p of paired randomization (Riezler and Maxwell 2005); None if the scores are equal."""
    bootstrap_signature: str
    randomization_signature: str

    @property
    def outcome(self) -> Literal["better", "worse"]:
        """Whether the system's score is better or worse; for TER, lower is better."""
        return "better" if (self.difference < 0) == (self.metric == "TER") else "worse"

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant by the randomization test."""
        return self.randomization_p is not None and self.randomization_p < ALPHA


@dataclass(frozen=True)
class Spread:
    """The scores of several trainings of one system."""

    scores: list[float]
    mean: float
    deviation: float
    """Sample standard deviation."""


@dataclass(frozen=True)
class GroupTest:
    """The tests of several trainings of a system against as many of the baseline, by one metric."""

    metric: MetricName
    baseline: Spread
    system: Spread
    difference: float
    """Difference of the means."""
    seeds_p: float
    """p of a permutation test: how often runs, split into two random groups, differ as much."""
    sentences_p: float
    """p of paired randomization of the sentences, in all runs at once."""
    signature: str

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant by the test of the sentences."""
        return bool(self.sentences_p < ALPHA)


def paired_tests(
    baseline: Sequence[str],
    systems: Sequence[Sequence[str]],
    refs: Sequence[Sequence[str]],
    metrics: Metrics,
    *,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> list[tuple[MetricTest, ...]]:
    """Test each of `systems` against `baseline` by each of `metrics`.

    Each of `refs` has one reference per line.

    The bootstrap is sacreBLEU's. Its randomization does not count differences that are exactly as
    large as the observed one, and so overstates significance on few sentences; hence
    `Randomization`.
    """
    named: list[tuple[str, Sequence[str]]] = [("0", baseline)]
    named += [(str(i), hyps) for i, hyps in enumerate(systems, 1)]
    by_name = cast("Mapping[str, Metric]", metrics)
    bootstrap = PairedTest(
        named, by_name, list(map(list, refs)), test_type="bs", n_samples=resamples
    )
    signatures, results = cast("tuple[dict[str, Signature], dict[str, list[Any]]]", bootstrap())
    tests = []
    for number, hyps in enumerate(systems, 1):
        of_system = []
        for name, metric in metrics.items():
            before = Estimate.of(results[name][0])
            after = Estimate.of(results[name][number])
            randomization = Randomization(metric, [baseline], [hyps], refs)
            has_difference = before.score != after.score  # otherwise there is nothing to test
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


class Randomization:
    """Paired randomization (Riezler and Maxwell 2005) of one or several runs of two systems.

    If the systems do not differ, a sentence's translations can be swapped between them, in all runs
    at once. p is how often the difference of the mean scores is then at least as large as the
    observed one. If few sentences differ, all ways to swap are tried, otherwise a sample. Letters:
    R runs, L lines, S sufficient statistics.
    """

    def __init__(
        self,
        metric: Metric,
        baseline: Sequence[Sequence[str]],
        system: Sequence[Sequence[str]],
        refs: Sequence[Sequence[str]],
    ) -> None:
        """`baseline` and `system` have the translations of the same number of runs."""
        self._metric = metric
        before = _statistics(metric, baseline, refs)  # (R, L, S)
        after = _statistics(metric, system, refs)
        differs = (before != after).any(axis=(0, 2))  # (L,)
        self.num_differing = int(differs.sum())
        """Number of lines whose statistics differ."""
        self._before = before[:, differs]
        self._after = after[:, differs]
        self._same = before[:, ~differs].sum(1)  # (R, S): sums over all other lines
        self._found = abs(self._difference(np.zeros(self.num_differing, bool)))

    def p(self, *, trials: int) -> float:
        """The share of ways to swap with a difference at least as large as the observed one."""
        is_exact = self._is_exact(trials)
        if is_exact:
            ways = np.arange(2**self.num_differing)[:, None] >> np.arange(self.num_differing) & 1
        else:
            rng = np.random.default_rng(SEED)
            ways = rng.integers(2, size=(trials, self.num_differing))
        differences = [abs(self._difference(way)) for way in ways.astype(bool)]
        num_as_large = sum(each >= self._found - ROUNDING for each in differences)
        # The observed difference counts as part of the sample.
        return num_as_large / len(ways) if is_exact else (num_as_large + 1) / (trials + 1)

    def signature(self, *, trials: int) -> str:
        """SacreBLEU's signature of the metric, with the number of trials or `exact`."""
        signature = self._metric.get_signature()
        signature.update("ar", "exact" if self._is_exact(trials) else trials)
        signature.update("seed", SEED)
        return str(signature.format())

    def _is_exact(self, trials: int) -> bool:
        return 2**self.num_differing <= trials

    def _difference(self, is_swapped: NDArray[np.bool_]) -> float:
        """System minus baseline mean score, with the lines of `is_swapped` swapped."""
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
    metrics: Metrics,
    *,
    trials: int = TRIALS,
) -> tuple[GroupTest, ...]:
    """Test several runs of a system against as many of the baseline, by each of `metrics`."""
    tests = []
    for name, metric in metrics.items():
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
    """Exact permutation test (Fisher 1935) on the difference of the means; returns p.

    p is how often the means differ as much when all scores are split into two such groups.
    """
    scores = [*one, *other]
    difference = abs(mean(one) - mean(other))
    num_as_large = 0
    num_ways = 0
    for places in combinations(range(len(scores)), len(one)):
        first = [scores[i] for i in places]
        second = [score for i, score in enumerate(scores) if i not in places]
        num_as_large += abs(mean(first) - mean(second)) >= difference - ROUNDING
        num_ways += 1
    return num_as_large / num_ways


def outcome_of(tests: Sequence[MetricTest]) -> Outcome:
    """The outcome of a system's `tests`, decided by BLEU."""
    bleu = tests[0]
    return bleu.outcome if bleu.is_significant else "unclear"
