"""BLEU, chrF2 and TER by sacreBLEU, with their signatures; paired tests; what a score does not
show.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, cast

from mt_cli.text.language import CHINESE, base_language, unspaced_script
from mt_cli.text.normalize import is_normal, is_tokenised

if TYPE_CHECKING:  # sacreBLEU is imported when something is scored
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.base import Score as MetricScore
    from sacrebleu.significance import Result

RESAMPLES, TRIALS = 1000, 10_000
"""Of the bootstrap and of the approximate randomisation: sacreBLEU's own numbers."""
MOST_RESAMPLED = 10_000
"""Sentences: sacreBLEU's bootstrap holds all its resamples in memory, 0.7 GB for chrF2 of so many."""
ENOUGH_LINES = 1000
"""References whose script is that of all."""
ALPHA = 0.05
"""A difference is shown if chance makes one as large less often than this."""
MetricName = Literal["BLEU", "chrF2", "TER"]
METRICS: tuple[MetricName, ...] = ("BLEU", "chrF2", "TER")


@dataclass(frozen=True)
class Score:
    """One metric's verdict on a set of translations."""

    name: str
    score: float
    """0 to 100; TER has no upper end, and less of it is better."""
    signature: str
    details: dict[str, object]
    """sacreBLEU's own JSON keys."""
    half_width: float | None = None
    """Of its 95 % bootstrap interval (Koehn 2004), where that was asked for."""
    interval: str | None = None
    """The interval as `sacrebleu --confidence` prints it, and the signature with its resamples and
    seed.
    """

    def __str__(self) -> str:
        return f"{self.name} {self.score:.2f}  {self.signature}"


@dataclass(frozen=True)
class Scores:
    """What sacreBLEU says of a set of translations."""

    metrics: Mapping[str, Score]
    """`bleu`, `chrf` and `ter`, in the order in which they are shown."""
    n: int
    """Sentences."""
    length_ratio: float
    """Tokens of the translations over those of the references, as BLEU counts them."""

    def as_json(self) -> dict[str, object]:
        """A part of what `evaluate --json` prints."""
        details = {key: metric.details for key, metric in self.metrics.items()}
        return {**details, "n": self.n, "length_ratio": self.length_ratio}


def score(
    hyps: Sequence[str], refs: Sequence[str], *, lang: str = "", lowercase: bool = False
) -> Scores:
    """Corpus scores of `hyps` against `refs`, which are in the language `lang`, with intervals.

    What a word is for BLEU and TER follows from `lang` and from the script of `refs`. BLEU and
    chrF2 are cased unless `lowercase`; TER never is, which is sacreBLEU's default. More than
    `MOST_RESAMPLED` sentences get no interval.
    """
    n_bootstrap = RESAMPLES if len(hyps) <= MOST_RESAMPLED else 1
    metrics = _metrics(bleu_tokenizer(refs, lang), lowercase)
    results = [_corpus_score(metric, hyps, refs, n_bootstrap=n_bootstrap) for metric in metrics]
    scores = dict(zip(("bleu", "chrf", "ter"), map(_describe, metrics, results), strict=True))
    ratio: float = results[0].ratio  # type: ignore[attr-defined]
    return Scores(scores, len(hyps), ratio)


def score_bleu(
    hyps: Sequence[str], refs: Sequence[str], *, lang: str = "", lowercase: bool = False
) -> Score:
    """Corpus BLEU of `hyps` against `refs`, as in `score`, and nothing slower."""
    metric = _metrics(bleu_tokenizer(refs, lang), lowercase)[0]
    return _describe(metric, _corpus_score(metric, hyps, refs, n_bootstrap=1))


def sentence_chrf(
    hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False
) -> list[float]:
    """chrF2 of each of `hyps` by itself."""
    metric = _metrics("13a", lowercase)[1]
    return [
        float(metric.sentence_score(hyp, [ref]).score) for hyp, ref in zip(hyps, refs, strict=True)
    ]


def _metrics(tokenizer: str, lowercase: bool) -> "tuple[Metric, Metric, Metric]":
    """BLEU, by words that `tokenizer` finds, chrF2 and TER as all scores here are made."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    # `symptoms` does the warning about tokens in place of sacreBLEU.
    bleu = BLEU(lowercase=lowercase, tokenize=tokenizer, force=True)
    has_no_spaces = tokenizer != "13a"
    ter = TER(normalized=has_no_spaces, asian_support=has_no_spaces)
    return bleu, CHRF(lowercase=lowercase), ter


def bleu_tokenizer(refs: Sequence[str], lang: str = "") -> str:
    """What sacreBLEU splits `refs` with, as its signature calls it; `lang` is their language if
    known.

    Its own choice for a language: zh, ja-mecab, ko-mecab, else 13a. Where a package for that is
    missing (sacrebleu[ja], sacrebleu[ko]), and in other scripts without spaces between words:
    characters.
    """
    language = base_language(lang)
    if language in CHINESE:
        return "zh"
    if language not in ("ja", "ko"):
        language = unspaced_script(refs[:ENOUGH_LINES])
    if language in ("ja", "ko"):
        return f"{language}-mecab" if _has_mecab(language) else "char"
    return {"": "13a", "zh": "zh"}.get(language, "char")


@cache
def _has_mecab(language: str) -> bool:
    from sacrebleu.metrics.bleu import BLEU

    try:
        BLEU(trg_lang=language)
    except (RuntimeError, ImportError):
        return False
    return True


def _corpus_score(
    metric: "Metric", hyps: Sequence[str], refs: Sequence[str], *, n_bootstrap: int
) -> "MetricScore":
    try:
        result: MetricScore = metric.corpus_score(list(hyps), [list(refs)], n_bootstrap=n_bootstrap)
    except (
        TypeError
    ):  # sacreBLEU 2.6.0 cannot average resamples of which one scores 0: then no interval
        metric.n_bootstrap = None
        result = metric.corpus_score(list(hyps), [list(refs)])
    return result


def _describe(metric: "Metric", result: "MetricScore") -> Score:
    """`result`, which `metric` has just computed, as a record of ours."""
    with_resamples, plain = metric.get_signature().format(), metric.get_signature()
    plain.update("bs", None)
    plain.update("seed", None)
    signature = plain.format()
    details, exact = (
        json.loads(result.format(width=width, signature=with_resamples, is_json=True))
        for width in (2, 10)
    )
    details |= {"score": result.score, "signature": signature}
    if "confidence" not in details:
        return Score(result.name, result.score, signature, details)
    details |= {key: exact[key] for key in ("confidence_mean", "confidence_var")}
    details["confidence_signature"], half_width = with_resamples, exact["confidence_var"]
    interval = f"{exact['confidence_mean']:.2f} ± {half_width:.2f}"
    return Score(
        result.name, result.score, signature, details, half_width, f"{interval}  {with_resamples}"
    )


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
    difference: float
    """The system's score less the baseline's."""
    bootstrap_p: float | None
    """By paired bootstrap (Koehn 2004); none where the scores are equal and there is nothing to
    test.
    """
    randomisation_p: float | None
    """By paired approximate randomisation (Riezler and Maxwell 2005); none as above."""
    bootstrap_signature: str
    randomisation_signature: str

    @property
    def outcome(self) -> Literal["better", "worse"]:
        """Which score the system has; less TER is better."""
        return "better" if (self.difference < 0) == (self.metric == "TER") else "worse"

    @property
    def is_significant(self) -> bool:
        """Whether the randomisation test shows a difference."""
        return self.randomisation_p is not None and self.randomisation_p < ALPHA

    def __str__(self) -> str:
        p = "scores equal" if self.randomisation_p is None else f"p = {self.randomisation_p:.4f}"
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
    large as the one that was found. So no randomisation p is below 2^(1-k), whatever the trials
    say.
    """
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]] = [
        (str(i), hyps) for i, hyps in enumerate([baseline, *systems])
    ]
    tokenizer = bleu_tokenizer(refs, lang)
    metrics = dict(zip(("BLEU", "CHRF", "TER"), _metrics(tokenizer, lowercase), strict=True))
    references = [list(refs)]
    bs_signatures, bs = PairedTest(
        named, metrics, references, test_type="bs", n_samples=resamples
    )()
    ar_signatures, ar = PairedTest(named, metrics, references, test_type="ar", n_samples=trials)()

    def test(name: MetricName, place: int) -> MetricTest:
        of_bs, of_ar = (cast("list[Result]", results[name]) for results in (bs, ar))
        before, after = (
            Estimate(float(each.score), float(each.mean or 0), float(each.ci or 0))
            for each in (of_bs[0], of_bs[place])
        )
        bootstrap_p = randomisation_p = None
        if before.score != after.score:  # or nothing is left to test
            num_changed = sum(
                old != new for old, new in zip(baseline, systems[place - 1], strict=True)
            )
            bootstrap_p = float(of_bs[place].p_value or 0)
            randomisation_p = max(
                float(of_ar[place].p_value or 0), min(1.0, 2.0 ** (1 - num_changed))
            )
        signatures = (bs_signatures[name].format(), ar_signatures[name].format())
        difference = after.score - before.score
        return MetricTest(
            name, before, after, difference, bootstrap_p, randomisation_p, *signatures
        )

    return [tuple(test(name, place) for name in METRICS) for place in range(1, len(named))]


def judge(
    name: str,
    baseline_name: str,
    tests: Sequence[MetricTest],
    *,
    num_changed: int,
    trials: int = TRIALS,
) -> tuple[Outcome, str]:
    """What the `tests` come to, and in plain English with the evidence. BLEU decides.

    `num_changed` translations differ.
    """
    if num_changed == 0:
        return (
            "identical",
            f"no difference: the translations of {name} and {baseline_name} are identical",
        )
    bleu, *others = tests
    evidence = f"{bleu} (paired approximate randomisation, {trials} trials)"
    shown = [each for each in others if each.is_significant]
    if not bleu.is_significant:
        but = [f"; but {name} is {each.outcome} by {each}" for each in shown]
        unclear = f"no difference can be shown between {name} and {baseline_name}"
        return "unclear", f"{unclear}: {evidence}{''.join(but)}"
    but = [
        f"; but it is {each.outcome} by {each}" for each in shown if each.outcome != bleu.outcome
    ]
    return bleu.outcome, f"{name} is {bleu.outcome} than {baseline_name}: {evidence}{''.join(but)}"


# Symptoms of a broken system that a score alone does not show: tokenised output, and loops

MOST_TOKENISED = 0.1
"""Normal share of lines that look tokenised."""
MOST_LOOPS = 0.02
"""Normal share of translations that repeat themselves."""
MOST_UNREACHABLE = 0.01
"""Normal share of references that no translation can equal."""
LOOP = re.compile(r"\b(\w+)(?: \1\b){3}|\b(\w+(?: \w+){1,3})(?: \2\b){2}")
"""A word four times in a row, or two to four words three times. "Very, very, very" is none."""


def symptoms(hyps: Sequence[str], refs: Sequence[str]) -> list[str]:
    """A sentence for each thing that looks wrong with `hyps` or `refs`."""
    found = []
    tokenised = _lines_that(is_tokenised, hyps)
    tokenised_refs = _lines_that(is_tokenised, refs)
    if tokenised_refs and len(tokenised_refs) >= MOST_TOKENISED * len(refs):
        found.append(
            f"{len(tokenised_refs)} of {len(refs)} references end in a space and a mark, such as "
            f"line {tokenised_refs[0]}: they look tokenised, and so the scores mislead; score "
            "against detokenised text"
        )
    elif tokenised and len(tokenised) - len(tokenised_refs) >= MOST_TOKENISED * len(hyps):
        found.append(
            f"{len(tokenised)} of {len(hyps)} lines end in a space and a mark, such as line "
            f"{tokenised[0]}: the output looks tokenised, and so its scores mislead; score "
            "detokenised text"
        )
    loops = _lines_that(is_looping, hyps)
    if loops and len(loops) - len(_lines_that(is_looping, refs)) >= MOST_LOOPS * len(hyps):
        found.append(
            f"{len(loops)} of {len(hyps)} translations repeat themselves, for example line "
            f"{loops[0]}: train longer, or evaluate and translate with --no-repeat-ngram 4"
        )
    unreachable = _lines_that(lambda line: not is_normal(line), refs)
    if len(unreachable) > MOST_UNREACHABLE * len(refs):
        found.append(
            f"{len(unreachable)} of {len(refs)} references, for example line {unreachable[0]}, are "
            "not in Unicode's NFC or hold invisible characters, which no translation has: the "
            "scores are too low"
        )
    return found


def _lines_that(has_symptom: Callable[[str], bool], lines: Sequence[str]) -> list[int]:
    """Numbers, from 1, of the lines that have a symptom."""
    return [number for number, line in enumerate(lines, start=1) if has_symptom(line)]


def is_looping(line: str) -> bool:
    """Whether one to four words are said again and again, whatever marks stand between them."""
    return LOOP.search(" ".join(re.findall(r"\w+", line.casefold()))) is not None
