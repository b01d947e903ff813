"""BLEU, chrF2 and TER by sacreBLEU, with their signatures; paired tests; what a score does not show."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # sacreBLEU is imported when something is scored
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.base import Score as MetricScore
    from sacrebleu.significance import Result

RESAMPLES, TRIALS = 1000, 10_000
"""Of the bootstrap and of the approximate randomisation: sacreBLEU's own numbers."""
MOST_RESAMPLED = 10_000
"""Sentences: sacreBLEU's bootstrap holds all its resamples in memory, 0.7 GB for chrF2 of so many."""
ALPHA = 0.05
"""A difference is shown if chance makes one as large less often than this."""
MetricName = Literal["BLEU", "chrF2", "TER"]
METRICS: tuple[MetricName, ...] = ("BLEU", "chrF2", "TER")


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
        named = zip(("bleu", "chrf", "ter"), self.metrics, strict=True)
        return {
            **{key: metric.details for key, metric in named},
            "n": self.n,
            "length_ratio": self.length_ratio,
        }


def score(
    hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False, resamples: int = RESAMPLES
) -> Scores:
    """Corpus scores of `hyps` against `refs`, with intervals from so many `resamples`; 1 gives none.

    BLEU (13a tokens) and chrF2 are cased unless `lowercase`; TER never is, which is sacreBLEU's default. More
    than `MOST_RESAMPLED` sentences get no interval.
    """
    n_bootstrap = resamples if len(hyps) <= MOST_RESAMPLED else 1
    metrics = _metrics(lowercase)
    results = [_corpus_score(metric, hyps, refs, n_bootstrap=n_bootstrap) for metric in metrics]
    bleu, chrf, ter = map(_describe, metrics, results)
    ratio: float = results[0].ratio  # type: ignore[attr-defined]
    return Scores(bleu, chrf, ter, n=len(hyps), length_ratio=ratio)


def score_bleu(hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False) -> Score:
    """Corpus BLEU of `hyps` against `refs`, and nothing slower."""
    metric = _metrics(lowercase)[0]
    return _describe(metric, _corpus_score(metric, hyps, refs, n_bootstrap=1))


def sentence_chrf(hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False) -> list[float]:
    """chrF2 of each of `hyps` by itself."""
    metric = _metrics(lowercase)[1]
    return [float(metric.sentence_score(hyp, [ref]).score) for hyp, ref in zip(hyps, refs, strict=True)]


def bleu_signature(*, lowercase: bool = False) -> str:
    """The signature of the BLEU that `score` gives."""
    return score_bleu([""], [""], lowercase=lowercase).signature


def _metrics(lowercase: bool) -> "tuple[Metric, Metric, Metric]":
    """BLEU, chrF2 and TER as all scores here are made."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    # `symptoms` does the warning about tokens in place of sacreBLEU.
    return BLEU(lowercase=lowercase, force=True), CHRF(lowercase=lowercase), TER()


def _corpus_score(
    metric: "Metric", hyps: Sequence[str], refs: Sequence[str], *, n_bootstrap: int
) -> "MetricScore":
    try:
        result: MetricScore = metric.corpus_score(list(hyps), [list(refs)], n_bootstrap=n_bootstrap)
    except TypeError:  # sacreBLEU 2.6.0 cannot average resamples of which one scores 0: then no interval
        metric.n_bootstrap = None
        result = metric.corpus_score(list(hyps), [list(refs)])
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
    digits = json.loads(result.format(width=10, signature=with_resamples, is_json=True))
    interval = Interval(digits["confidence_mean"], digits["confidence_var"], with_resamples)
    details |= {
        "confidence_mean": interval.mean,
        "confidence_var": interval.half_width,
        "confidence_signature": interval.signature,
    }
    return Score(result.name, result.score, signature, details, interval)


# Is one system better than another?


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


def paired_tests(
    baseline: Sequence[str],
    systems: Sequence[Sequence[str]],
    refs: Sequence[str],
    *,
    lowercase: bool = False,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> list[tuple[MetricTest, ...]]:
    """BLEU, chrF2 and TER of each of `systems` against `baseline`, with sacreBLEU's tests and seed.

    Where k translations differ, chance swaps them in 2^k ways, of which two give a difference as large as
    the one that was found. So no randomisation p is below 2^(1-k), whatever the trials say.
    """
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]] = [(str(i), hyps) for i, hyps in enumerate([baseline, *systems])]
    metrics = dict(zip(("BLEU", "CHRF", "TER"), _metrics(lowercase), strict=True))
    references = [list(refs)]
    bs_signatures, bs = PairedTest(named, metrics, references, test_type="bs", n_samples=resamples)()
    ar_signatures, ar = PairedTest(named, metrics, references, test_type="ar", n_samples=trials)()
    tests = []
    for place, hyps in enumerate(systems, start=1):
        num_changed = sum(old != new for old, new in zip(baseline, hyps, strict=True))
        least = min(1.0, 2.0 ** (1 - num_changed))
        tests.append(
            tuple(
                MetricTest(
                    name,
                    _estimate(bs[name][0]),
                    _estimate(bs[name][place]),
                    bootstrap_p=_p_value(bs[name], place),
                    randomisation_p=None if (p := _p_value(ar[name], place)) is None else max(p, least),
                    bootstrap_signature=bs_signatures[name].format(),
                    randomisation_signature=ar_signatures[name].format(),
                )
                for name in METRICS
            )
        )
    return tests


def _tested(result: "str | Result") -> "Result":
    assert not isinstance(result, str)  # those are the names of systems
    return result


def _estimate(of: "str | Result") -> Estimate:
    """All NumPy numbers become Python's."""
    result = _tested(of)
    return Estimate(float(result.score), float(result.mean or 0), float(result.ci or 0))


def _p_value(results: "Sequence[str | Result]", place: int) -> float | None:
    """None between equal scores: nothing is left to test."""
    baseline, system = _tested(results[0]), _tested(results[place])
    return None if system.p_value is None or system.score == baseline.score else float(system.p_value)


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
    bleu, *others = tests
    evidence = f"{_evidence(bleu)} (paired approximate randomisation, {trials} trials)"
    shown = [each for each in others if each.is_significant]
    if not bleu.is_significant:
        but = [f"; but {name} is {_outcome(each)} by {_evidence(each)}" for each in shown]
        unclear = f"no difference can be shown between {name} and {baseline_name}"
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


# Symptoms of a broken system that a score alone does not show: tokenised output, and loops

TOKENISED_LINE = re.compile(r"\s[.,!?]\s*$")
"""A space before the last mark, as in "A dog runs ." """
WORD = re.compile(r"\w+")
LOOPS = {1: 4, 2: 3, 3: 3, 4: 3}
"""Words in a row, and how many times they follow one another in a loop. "Very, very, very" is none."""
SHARE_TOKENISED, SHARE_LOOPING = 0.1, 0.02
"""Of the lines, from which on a symptom is told. References show how much of it is normal."""


def symptoms(hyps: Sequence[str], refs: Sequence[str]) -> list[str]:
    """A sentence for each thing that looks wrong with `hyps`, where `refs` do not look the same."""
    found = []
    for has_symptom, least, sentence in (
        (
            is_tokenised,
            SHARE_TOKENISED,
            "{0} of {1} lines end in a space and a mark, such as line {2}: the output looks tokenised, and "
            "so its scores mislead; score detokenised text",
        ),
        (
            is_looping,
            SHARE_LOOPING,
            "{0} of {1} lines say the same over and over, such as line {2}: train longer, or evaluate and "
            "translate with --no-repeat-ngram 4",
        ),
    ):
        lines = [number for number, line in enumerate(hyps, start=1) if has_symptom(line)]
        if lines and len(lines) / len(hyps) - _share(has_symptom, refs) >= least:
            found.append(sentence.format(len(lines), len(hyps), lines[0]))
    return found


def _share(has_symptom: Callable[[str], bool], lines: Sequence[str]) -> float:
    return sum(map(has_symptom, lines)) / max(1, len(lines))


def is_tokenised(line: str) -> bool:
    """Whether a space stands before the last punctuation mark."""
    return TOKENISED_LINE.search(line) is not None


def is_looping(line: str) -> bool:
    """Whether one to four words are said again and again."""
    words = WORD.findall(line.casefold())
    return any(_longest_echo(words, n) >= n * (times - 1) for n, times in LOOPS.items())


def _longest_echo(words: Sequence[str], n: int) -> int:
    """Most words in a row that equal the ones `n` places before."""
    longest = run = 0
    for earlier, later in zip(words, words[n:], strict=False):
        run = run + 1 if earlier == later else 0
        longest = max(longest, run)
    return longest
