"""BLEU, chrF2 and TER by sacreBLEU, never without their signatures.

Knows detokenised lines, not where they come from.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # sacreBLEU is imported when something is scored
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.base import Score as MetricScore
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

RESAMPLES = 1000
"""Of the bootstrap: as many as `sacrebleu --confidence` draws."""
MOST_RESAMPLED = 10_000
"""Sentences: sacreBLEU's bootstrap holds all its resamples in memory, 0.7 GB for chrF2 of so many."""
DIGITS = 10
"""Of a confidence interval. sacreBLEU hands it out as text."""


@dataclass(frozen=True)
class Interval:
    """A 95 % bootstrap interval (Koehn 2004), as `sacrebleu --confidence` gives it."""

    mean: float
    half_width: float
    signature: str
    """The score's, with the number of resamples and their seed."""

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.half_width:.2f}  {self.signature}"


@dataclass(frozen=True)
class Score:
    """One metric's verdict on a set of translations."""

    name: str
    score: float
    """0 to 100; TER has no upper end, and less of it is better."""
    signature: str
    details: dict[str, object]
    """sacreBLEU's own JSON keys."""
    interval: Interval | None = None
    """Only where it was asked for."""

    def __str__(self) -> str:
        return f"{self.name} {self.score:.2f}  {self.signature}"


@dataclass(frozen=True)
class Scores:
    """What sacreBLEU says of a set of translations."""

    bleu: Score
    chrf: Score
    ter: Score
    n: int
    """Sentences."""
    length_ratio: float
    """Tokens of the translations over those of the references, as BLEU counts them."""

    @property
    def metrics(self) -> tuple[Score, Score, Score]:
        """All three, in the order in which they are shown."""
        return self.bleu, self.chrf, self.ter

    def as_json(self) -> dict[str, object]:
        """A part of what `evaluate --json` prints."""
        return {
            "bleu": self.bleu.details,
            "chrf": self.chrf.details,
            "ter": self.ter.details,
            "n": self.n,
            "length_ratio": self.length_ratio,
        }


def score_bleu(hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False) -> Score:
    """Corpus BLEU of `hyps` against `refs` (13a tokens, cased unless `lowercase`), and nothing slower."""
    metric = bleu_metric(lowercase=lowercase)
    return _describe(metric, _corpus_score(metric, hyps, refs, n_bootstrap=1))


def score_chrf(hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False) -> Score:
    """Corpus chrF2 of `hyps` against `refs`, cased unless `lowercase`."""
    metric = chrf_metric(lowercase=lowercase)
    return _describe(metric, _corpus_score(metric, hyps, refs, n_bootstrap=1))


def sentence_chrf(hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False) -> list[float]:
    """chrF2 of each of `hyps` by itself."""
    metric = chrf_metric(lowercase=lowercase)
    return [float(metric.sentence_score(hyp, [ref]).score) for hyp, ref in zip(hyps, refs, strict=True)]


def score(
    hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False, resamples: int = RESAMPLES
) -> Scores:
    """Corpus scores of `hyps` against `refs`, with intervals from so many `resamples`; 1 gives none.

    BLEU and chrF2 are cased unless `lowercase`; TER never is, which is sacreBLEU's default. More than
    `MOST_RESAMPLED` sentences get no interval.
    """
    from sacrebleu.metrics.bleu import BLEUScore
    from sacrebleu.metrics.ter import TER

    n_bootstrap = resamples if len(hyps) <= MOST_RESAMPLED else 1
    bleu, chrf, ter = bleu_metric(lowercase=lowercase), chrf_metric(lowercase=lowercase), TER()
    bleu_result, chrf_result, ter_result = (
        _corpus_score(metric, hyps, refs, n_bootstrap=n_bootstrap) for metric in (bleu, chrf, ter)
    )
    assert isinstance(bleu_result, BLEUScore)
    return Scores(
        _describe(bleu, bleu_result),
        _describe(chrf, chrf_result),
        _describe(ter, ter_result),
        n=len(hyps),
        length_ratio=bleu_result.ratio,
    )


def bleu_signature(*, lowercase: bool = False) -> str:
    """The signature of the BLEU that `score` gives."""
    return score_bleu([""], [""], lowercase=lowercase).signature


def bleu_metric(*, lowercase: bool) -> "BLEU":
    """BLEU as all scores here are made; `symptoms` does the warning about tokens in place of sacreBLEU."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(lowercase=lowercase, force=True)


def chrf_metric(*, lowercase: bool) -> "CHRF":
    """chrF2 as all scores here are made."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(lowercase=lowercase)


def _corpus_score(
    metric: "Metric", hyps: Sequence[str], refs: Sequence[str], *, n_bootstrap: int
) -> "MetricScore":
    """What `metric.corpus_score` gives, from the same steps, which fails where a resample scores 0.

    It takes the mean of Python's floats and NumPy's, and Python refuses to (sacreBLEU 2.6.0).
    """
    from sacrebleu.significance import _bootstrap_resample

    stats = metric._extract_corpus_statistics(hyps, [refs])
    result: MetricScore = metric._aggregate_and_compute(stats)
    if n_bootstrap > 1:
        metric.n_bootstrap = n_bootstrap
        metric.seed, resampled = _bootstrap_resample(stats, metric, n_bootstrap)
        for each in resampled:
            each.score = float(each.score)
        result.estimate_ci(resampled)
    return result


def _describe(metric: "Metric", result: "MetricScore") -> Score:
    """`result`, which `metric` has just computed, as a record of ours."""
    with_resamples, plain = metric.get_signature().format(), metric.get_signature()
    plain.update("bs", None)
    plain.update("seed", None)
    signature = plain.format()
    details = json.loads(result.format(width=2, signature=with_resamples, is_json=True))
    details |= {"score": result.score, "signature": signature}
    if "confidence" not in details:
        return Score(result.name, result.score, signature, details)
    digits = json.loads(result.format(width=DIGITS, signature=with_resamples, is_json=True))
    interval = Interval(digits["confidence_mean"], digits["confidence_var"], with_resamples)
    details |= {
        "confidence_mean": interval.mean,
        "confidence_var": interval.half_width,
        "confidence_signature": interval.signature,
    }
    return Score(result.name, result.score, signature, details, interval)
