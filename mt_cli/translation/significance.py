"""Is one system better than another? Paired tests, and their answer in a sentence.

Knows translations and references, not what made them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mt_cli.translation.scoring import bleu_metric, chrf_metric

if TYPE_CHECKING:  # sacreBLEU is imported when something is scored
    from sacrebleu.significance import Result

RESAMPLES, TRIALS = 1000, 10_000
"""Of the paired bootstrap and of the approximate randomisation: sacreBLEU's own numbers."""
BYTES_A_RESAMPLE, BYTES_A_TRIAL = 80, 10
"""Of each sentence: its place and chrF2's 18 counts; two truth values, one of which becomes a float."""
ALPHA = 0.05
"""A difference is shown if chance makes one as large less often than this."""
Metric = Literal["BLEU", "chrF2", "TER"]
METRICS: tuple[Metric, ...] = ("BLEU", "chrF2", "TER")


@dataclass(frozen=True)
class Estimate:
    """A system's score, and the mean and half width of its 95 % bootstrap interval."""

    score: float
    mean: float
    half_width: float


@dataclass(frozen=True)
class MetricTest:
    """A system against the baseline, by one metric."""

    metric: Metric
    baseline: Estimate
    system: Estimate
    bootstrap_p: float | None
    """By paired bootstrap (Koehn 2004); none where the scores are equal and there is nothing to test."""
    randomisation_p: float | None
    """By paired approximate randomisation (Riezler and Maxwell 2005); none as above."""
    bootstrap_signature: str
    randomisation_signature: str

    @property
    def difference(self) -> float:
        """The system's score less the baseline's."""
        return self.system.score - self.baseline.score

    @property
    def is_better(self) -> bool:
        """Whether the system has the better score; less TER is better."""
        return self.difference < 0 if self.metric == "TER" else self.difference > 0

    @property
    def is_significant(self) -> bool:
        """Whether the randomisation test shows a difference."""
        return self.randomisation_p is not None and self.randomisation_p < ALPHA


@dataclass(frozen=True)
class Verdict:
    """The answer to whether a system is better than the baseline."""

    outcome: Literal["better", "worse", "unclear", "identical"]
    sentence: str
    """The same in plain English, with its evidence."""


def memory_needed(num_lines: int, *, resamples: int, trials: int) -> int:
    """About the bytes that `paired_tests` takes: sacreBLEU holds all resamples of a metric, or all trials."""
    return num_lines * max(BYTES_A_RESAMPLE * resamples, BYTES_A_TRIAL * trials)


def paired_tests(
    baseline: Sequence[str],
    systems: Sequence[Sequence[str]],
    refs: Sequence[str],
    *,
    lowercase: bool = False,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> list[tuple[MetricTest, ...]]:
    """BLEU, chrF2 and TER of each of `systems` against `baseline`, with sacreBLEU's seed."""
    from sacrebleu.metrics.ter import TER
    from sacrebleu.significance import PairedTest

    from mt_cli.translation.randomisation import PairedRandomisation

    named: list[tuple[str, Sequence[str]]] = [(str(i), hyps) for i, hyps in enumerate([baseline, *systems])]
    metrics = {
        "BLEU": bleu_metric(lowercase=lowercase),
        "CHRF": chrf_metric(lowercase=lowercase),
        "TER": TER(),
    }
    references = [list(refs)]
    bs_signatures, bs = PairedTest(named, metrics, references, test_type="bs", n_samples=resamples)()
    ar_signatures, ar = PairedRandomisation(named, metrics, references, trials=trials)()
    return [
        tuple(
            _metric_test(
                name,
                bs[name],
                ar[name],
                place,
                bootstrap_signature=bs_signatures[name].format(),
                randomisation_signature=ar_signatures[name].format(),
            )
            for name in METRICS
        )
        for place in range(1, len(named))
    ]


def _metric_test(
    name: Metric,
    bootstrap: "Sequence[str | Result]",
    randomisation: "Sequence[str | Result]",
    place: int,
    *,
    bootstrap_signature: str,
    randomisation_signature: str,
) -> MetricTest:
    """The system at `place` against the one at 0. All NumPy numbers become Python's."""
    baseline, system = _estimate(bootstrap[0]), _estimate(bootstrap[place])
    # Between equal scores, nothing is left to test. Of identical translations, sacreBLEU's bootstrap would
    # give the smallest p that there is.
    is_tested = baseline.score != system.score
    return MetricTest(
        name,
        baseline,
        system,
        bootstrap_p=_p_value(bootstrap[place]) if is_tested else None,
        randomisation_p=_p_value(randomisation[place]) if is_tested else None,
        bootstrap_signature=bootstrap_signature,
        randomisation_signature=randomisation_signature,
    )


def _estimate(result: "str | Result") -> Estimate:
    assert not isinstance(result, str)  # those are the names of systems
    assert result.mean is not None
    assert result.ci is not None
    return Estimate(float(result.score), float(result.mean), float(result.ci))


def _p_value(result: "str | Result") -> float:
    assert not isinstance(result, str)
    assert result.p_value is not None
    return float(result.p_value)


def judge(
    name: str,
    baseline_name: str,
    tests: Sequence[MetricTest],
    *,
    num_changed: int,
    trials: int = TRIALS,
) -> Verdict:
    """What the `tests` come to, where `num_changed` translations differ. BLEU decides."""
    if num_changed == 0:
        return Verdict(
            "identical", f"no difference: the translations of {name} and {baseline_name} are identical"
        )
    unclear = f"no difference can be shown between {name} and {baseline_name}"
    bleu, *others = tests
    evidence = f"{_evidence(bleu)} (paired approximate randomisation, {trials} trials)"
    shown = [each for each in others if each.is_significant]
    if not bleu.is_significant:
        but = [f"; but {name} is {_outcome(each)} by {_evidence(each)}" for each in shown]
        return Verdict("unclear", f"{unclear}: {evidence}{''.join(but)}")
    but = [
        f"; but it is {_outcome(each)} by {_evidence(each)}"
        for each in shown
        if each.is_better != bleu.is_better
    ]
    outcome = _outcome(bleu)
    return Verdict(outcome, f"{name} is {outcome} than {baseline_name}: {evidence}{''.join(but)}")


def _outcome(test: MetricTest) -> Literal["better", "worse"]:
    return "better" if test.is_better else "worse"


def _evidence(test: MetricTest) -> str:
    """The difference and how likely chance is to make one as large."""
    p = "scores equal" if test.randomisation_p is None else f"p = {test.randomisation_p:.4f}"
    return f"{test.metric} {test.difference:+.2f}, {p}"
