"""Is one system better than another? Paired significance tests by sacreBLEU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sacrebleu.metrics.base import Signature
from sacrebleu.significance import PairedTest, Result

from mt_cli.evaluation.scoring import (
    METRIC_NAMES,
    RESAMPLES,
    MetricName,
    bleu_tokenizer,
    make_metrics,
)

TRIALS = 10_000
"""Of the approximate randomization: sacreBLEU's own number."""


ALPHA = 0.05
"""A difference is shown if chance makes one as large less often than this."""


@dataclass(frozen=True)
class Estimate:
    """A system's score, and the mean and half width of its 95 % bootstrap interval."""

    score: float
    mean: float
    half_width: float


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
    """By paired approximate randomization (Riezler and Maxwell 2005); none as above."""
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

    def __str__(self) -> str:
        p = "scores equal" if self.randomization_p is None else f"p = {self.randomization_p:.4f}"
        return f"{self.metric} {self.difference:+.2f}, {p}"


Outcome = Literal["better", "worse", "unclear", "identical"]


def paired_tests(
    baseline: Sequence[str],
    systems: Sequence[Sequence[str]],
    refs: Sequence[str],
    *,
    lang: str = "",
    lowercase: bool = False,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> list[tuple[MetricTest, ...]]:
    """BLEU, chrF2 and TER of each of `systems` against `baseline`, with sacreBLEU's tests and seed.

    `lang` is as in `score`.

    Where k translations differ, chance swaps them in 2^k ways, of which two give a difference as
    large as the one that was found. So no randomization p is below 2^(1-k), whatever the trials
    say.
    """
    named: list[tuple[str, Sequence[str]]] = [("0", baseline)]
    named += [(str(i), hyps) for i, hyps in enumerate(systems, 1)]
    bleu, chrf, ter = make_metrics(bleu_tokenizer(refs, lang), lowercase)
    metrics = {"BLEU": bleu, "CHRF": chrf, "TER": ter}
    references = [list(refs)]
    bootstrap = PairedTest(named, metrics, references, test_type="bs", n_samples=resamples)()
    randomization = PairedTest(named, metrics, references, test_type="ar", n_samples=trials)()
    tests = []
    for number, hyps in enumerate(systems, 1):
        num_changed = sum(old != new for old, new in zip(baseline, hyps, strict=True))
        of_system = []
        for name in METRIC_NAMES:
            of_system.append(_metric_test(name, number, bootstrap, randomization, num_changed))
        tests.append(tuple(of_system))
    return tests


def _metric_test(
    name: MetricName,
    number: int,
    bootstrap: "tuple[dict[str, Signature], dict[str, list[Any]]]",
    randomization: "tuple[dict[str, Signature], dict[str, list[Any]]]",
    num_changed: int,
) -> MetricTest:
    """The test of system `number` by one metric, from what sacreBLEU returned for all."""
    bootstrap_signatures, bootstrap_results = bootstrap
    randomization_signatures, randomization_results = randomization
    before = _estimate(bootstrap_results[name][0])
    after = _estimate(bootstrap_results[name][number])
    bootstrap_p = None
    randomization_p = None
    if before.score != after.score:  # otherwise nothing is left to test
        bootstrap_p = float(bootstrap_results[name][number].p_value or 0)
        randomization_p = float(randomization_results[name][number].p_value or 0)
        randomization_p = max(randomization_p, min(1.0, 2.0 ** (1 - num_changed)))
    return MetricTest(
        metric=name,
        baseline=before,
        system=after,
        difference=after.score - before.score,
        bootstrap_p=bootstrap_p,
        randomization_p=randomization_p,
        bootstrap_signature=bootstrap_signatures[name].format(),
        randomization_signature=randomization_signatures[name].format(),
    )


def _estimate(result: Result) -> Estimate:
    return Estimate(float(result.score), float(result.mean or 0), float(result.ci or 0))


def judge(
    name: str,
    baseline_name: str,
    tests: Sequence[MetricTest],
    *,
    num_changed: int,
    trials: int = TRIALS,
) -> tuple[Outcome, str]:
    """The outcome of the `tests`, and a sentence with the evidence. BLEU decides.

    `num_changed` translations differ.
    """
    if num_changed == 0:
        verdict = f"no difference: the translations of {name} and {baseline_name} are identical"
        return "identical", verdict
    bleu, *others = tests
    evidence = f"{bleu} (paired approximate randomization, {trials} trials)"
    shown = [each for each in others if each.is_significant]
    if not bleu.is_significant:
        but = [f"; but {name} is {each.outcome} by {each}" for each in shown]
        unclear = f"no difference can be shown between {name} and {baseline_name}"
        return "unclear", f"{unclear}: {evidence}{''.join(but)}"
    but = [
        f"; but it is {each.outcome} by {each}" for each in shown if each.outcome != bleu.outcome
    ]
    return bleu.outcome, f"{name} is {bleu.outcome} than {baseline_name}: {evidence}{''.join(but)}"
