"""The paired approximate randomisation test: sacreBLEU's, but ties count as they do in the literature.

Knows sacreBLEU's metrics and its counts of each sentence. Letters: N sentences, R trials.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result


class PairedRandomisation(PairedTest):
    """How often is a difference as large, if chance swaps translations (Riezler and Maxwell 2005)?

    sacreBLEU counts trials with a larger difference alone. Where single sentences are worth the same, many
    trials tie with what was found, and its p is too small: 0.0001 if only one translation differs, where any
    swap gives the same difference and the p is 1. Seed, swaps, scores and signature are sacreBLEU's.
    """

    def __init__(
        self,
        named_systems: Sequence[tuple[str, Sequence[str]]],
        metrics: Mapping[str, Metric],
        references: Sequence[Sequence[str]] | None,
        *,
        trials: int,
    ) -> None:
        super().__init__(list(named_systems), metrics, references, test_type="ar", n_samples=trials)
        self._fn = _test  # type: ignore[assignment]  # its arguments have no defaults


def _test(
    baseline_info: Mapping[str, tuple[NDArray[np.float64], Result]],
    name: str,
    hyps: Sequence[str],
    references: Sequence[Sequence[str]] | None,
    metrics: Mapping[str, Metric],
    trials: int,
    _num_resamples: int,
    seed: int | None,
) -> tuple[str, dict[str, Result]]:
    """The test of one system by each metric, in the form that sacreBLEU asks of a test."""
    is_swapped = np.random.default_rng(seed).integers(2, size=(trials, len(hyps)), dtype=bool)  # (R, N)
    is_kept = ~is_swapped
    results = {}
    for metric_name, metric in metrics.items():
        counts, baseline = baseline_info[metric_name]
        system_counts = metric._extract_corpus_statistics(hyps, references)
        score = metric._aggregate_and_compute(system_counts).score
        # Floats, which hold these counts exactly: NumPy multiplies matrices of integers eight times slower.
        own, others = np.asarray(counts, dtype=float), np.asarray(system_counts, dtype=float)
        one = _scores(metric, is_swapped @ own + is_kept @ others)
        other = _scores(metric, is_kept @ own + is_swapped @ others)
        num_as_large = int((abs(one - other) >= abs(baseline.score - score)).sum())
        results[metric_name] = Result(score, (num_as_large + 1) / (trials + 1))
    return name, results


def _scores(metric: Metric, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The score that `metric` gives each of the trials, whose counts `sums` (R, number of counts) holds."""
    return np.array([metric._compute_score_from_stats(each.tolist()).score for each in sums])
