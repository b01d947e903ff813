"""Paired tests against sacreBLEU's own command, and the sentence made of them."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from sacrebleu_command import command_p_values

from mt_cli.evaluation.scoring import MetricName
from mt_cli.evaluation.significance import Estimate, MetricTest, judge, paired_tests

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


@pytest.fixture(scope="module")
def tests() -> tuple[MetricTest, ...]:
    (tests,) = paired_tests(BASELINE, [SYSTEM], REFS)
    return tests


def test_bootstrap_p_values_equal_the_commands(
    tests: tuple[MetricTest, ...], tmp_path: Path
) -> None:
    ours = {each.metric: f"{each.bootstrap_p:.4f}" for each in tests}
    assert ours == command_p_values(tmp_path, BASELINE, SYSTEM, REFS, "--paired-bs")


def test_randomisation_p_values_equal_the_commands(
    tests: tuple[MetricTest, ...], tmp_path: Path
) -> None:
    ours = {each.metric: f"{each.randomization_p:.4f}" for each in tests}
    assert ours == command_p_values(tmp_path, BASELINE, SYSTEM, REFS, "--paired-ar")
    assert len(set(ours.values())) > 1


def test_equal_scores_leave_nothing_to_test() -> None:
    (tests,) = paired_tests(BASELINE, [BASELINE], REFS, resamples=100, trials=100)
    assert {(each.bootstrap_p, each.randomization_p, each.is_significant) for each in tests} == {
        (None, None, False)
    }


def made_up(metric: MetricName, difference: float, p: float | None) -> MetricTest:
    after = Estimate(40 + difference, 40, 1)
    return MetricTest(metric, Estimate(40, 40, 1), after, difference, p, p, "", "")


def test_one_changed_sentence_proves_nothing() -> None:
    refs = [f"The dog number {i} runs home." for i in range(120)]  # each is worth the same
    (tests,) = paired_tests(refs, [["A cat sleeps.", *refs[1:]]], refs, resamples=100, trials=100)
    # Swapped or not, the difference is as large.
    assert {each.randomization_p for each in tests} == {1.0}
    assert judge("B", "A", tests, num_changed=1, trials=100)[0] == "unclear"


BETTER = (made_up("BLEU", 0.62, 0.012), made_up("chrF2", 0.5, 0.02), made_up("TER", -0.4, 0.03))
WORSE = (made_up("BLEU", -1, 0.012), made_up("chrF2", -1, 0.02), made_up("TER", 1, 0.2))
UNCLEAR = [replace(each, randomization_p=0.3) for each in BETTER]
MIXED = (*BETTER[:2], made_up("TER", 0.9, 0.01))


@pytest.mark.parametrize(
    ("tests", "num_changed", "outcome", "told"),
    [
        (BETTER, 90, "better", "BLEU +0.62, p = 0.0120"),
        (WORSE, 90, "worse", "BLEU -1.00, p = 0.0120"),
        (UNCLEAR, 90, "unclear", ""),
        (MIXED, 90, "better", "TER +0.90, p = 0.0100"),
        (BETTER, 0, "identical", ""),
    ],
    ids=["better", "worse", "unclear", "metrics that disagree", "identical"],
)
def test_verdict_rests_on_its_evidence(
    tests: tuple[MetricTest, ...], num_changed: int, outcome: str, told: str
) -> None:
    found, sentence = judge("B", "A", tests, num_changed=num_changed)
    assert found == outcome
    assert told in sentence
