"""Paired tests against sacreBLEU's own command, and the sentence made of them."""

import math
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu_command import command_p_values

from mt_cli.evaluation.compare import find_changes
from mt_cli.evaluation.scoring import MetricName, make_metrics
from mt_cli.evaluation.significance import (
    Estimate,
    MetricTest,
    Randomization,
    group_tests,
    outcome_of,
    paired_tests,
    permutation_p,
)

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "test.en"
REFS = SAMPLE.read_text(encoding="utf-8").splitlines()[:25]


def damaged(lines: list[str], share: float, *, seed: int) -> list[str]:
    """`lines` in which a `share` of the words stands for another of the same line."""
    draw = random.Random(seed)
    found = []
    for line in lines:
        words = line.split()
        others = [draw.choice(words) if draw.random() < share else word for word in words]
        found.append(" ".join(others))
    return found


BASELINE, SYSTEM = damaged(REFS, 0.35, seed=1), damaged(REFS, 0.25, seed=2)


def test_bootstrap_p_values_equal_the_commands(tmp_path: Path) -> None:
    (tests,) = paired_tests(BASELINE, [SYSTEM], [REFS], make_metrics(REFS))
    ours = {each.metric: f"{each.bootstrap_p:.4f}" for each in tests}
    assert ours == command_p_values(tmp_path, BASELINE, SYSTEM, REFS, "--paired-bs")


class LinesRight:
    """A metric that is worked by hand: how many lines are their reference."""

    def _extract_corpus_statistics(self, hyps: list[str], refs: list[list[str]]) -> list[list[int]]:
        return [[int(hyp == ref)] for hyp, ref in zip(hyps, refs[0], strict=True)]

    def _compute_score_from_stats(self, stats: Sequence[float]) -> SimpleNamespace:
        return SimpleNamespace(score=float(stats[0]))


def randomization(gains: int, losses: int, same: int, runs: int = 1) -> Randomization:
    refs = ["a"] * (gains + losses + same)
    before = ["b"] * gains + ["a"] * losses + ["a"] * same
    after = ["a"] * gains + ["b"] * losses + ["a"] * same
    return Randomization(cast("Metric", LinesRight()), [before] * runs, [after] * runs, [refs])


@pytest.mark.parametrize("runs", [1, 3])
def test_differences_that_are_as_large_count(runs: int) -> None:
    # Of ten equal lines, 8 or more, or 2 or fewer, of one kind: 2 · (1 + 10 + 45) of 1,024 ways.
    assert randomization(8, 2, 40, runs).p(trials=10_000) == 112 / 1024
    assert randomization(1, 0, 300, runs).p(trials=10_000) == 1.0
    assert randomization(5, 0, 0, runs).p(trials=10_000) == 2 / 32


def test_a_sample_of_the_ways_to_swap_is_near_all_of_them() -> None:
    exact = sum(math.comb(20, k) for k in range(21) if abs(2 * k - 20) >= 8) / 2**20
    assert randomization(14, 6, 3).p(trials=10_000) == pytest.approx(exact, abs=0.02)
    assert "ar:10000" in Randomization(BLEU(), [BASELINE], [SYSTEM], [REFS]).signature(
        trials=10_000
    )


def test_exact_p_is_that_of_an_enumeration() -> None:
    baseline, system, refs = BASELINE[:6], SYSTEM[:6], REFS[:6]
    bleu = BLEU()

    def difference(swapped: tuple[bool, ...]) -> float:
        sides = [
            (s, b) if swap else (b, s) for b, s, swap in zip(baseline, system, swapped, strict=True)
        ]
        one, other = zip(*sides, strict=True)
        return abs(
            bleu.corpus_score(list(one), [refs]).score
            - bleu.corpus_score(list(other), [refs]).score
        )

    ways = [difference(swapped) for swapped in product((False, True), repeat=6)]
    expected = sum(way >= ways[0] - 1e-9 for way in ways) / len(ways)
    assert Randomization(bleu, [baseline], [system], [refs]).p(trials=10_000) == expected


def test_several_trainings_are_compared_by_hand() -> None:
    # Means 41 and 43, deviations 1 and 1. Of the 20 ways to deal six runs, two differ as much.
    assert permutation_p([40, 41, 42], [42, 43, 44]) == pytest.approx(4 / 20)
    assert permutation_p([40, 41], [43, 44]) == pytest.approx(2 / 6)
    assert permutation_p([1, 1], [1, 1]) == 1.0
    tests = group_tests([REFS[::-1], REFS[::-1]], [REFS, REFS], [REFS], make_metrics(REFS))
    assert tests[0].system.mean == pytest.approx(100)
    assert tests[0].system.deviation == 0
    assert tests[0].seeds_p == pytest.approx(2 / 6)
    assert tests[0].sentences_p < 0.01


def made_up(metric: MetricName, difference: float, p: float | None) -> MetricTest:
    after = Estimate(40 + difference, 40, 1)
    return MetricTest(metric, Estimate(40, 40, 1), after, difference, p, p, "", "")


@pytest.mark.parametrize(
    ("difference", "p", "outcome"),
    [(0.62, 0.012, "better"), (-1.0, 0.012, "worse"), (0.62, 0.3, "unclear")],
)
def test_outcome_is_that_of_bleu(difference: float, p: float, outcome: str) -> None:
    worse = made_up("TER", 0.9, 0.01)
    assert outcome_of((made_up("BLEU", difference, p), worse)) == outcome


def test_only_what_changed_is_listed_with_its_line() -> None:
    refs, hyps = ["A cat.", "A dog.", "Red."], ["A cat.", "A dog.", "Rot."]
    sources = ["Katze", "Hund", "Rot"]
    (dog,) = find_changes(["A cat.", "A cat.", "Rot."], hyps, [refs], sources, CHRF())
    assert (dog["line"], dog["source"], dog["ref"]) == (2, "Hund", "A dog.")
    assert (dog["baseline_hyp"], dog["hyp"], dog["chrf"]) == ("A cat.", "A dog.", 100)
    assert dog["difference"] == dog["chrf"] - dog["baseline_chrf"] > 0
