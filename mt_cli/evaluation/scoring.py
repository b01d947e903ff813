"""BLEU, chrF2 and TER from sacreBLEU, with their signatures."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as MetricScore
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from mt_cli.text.language import CHINESE, base_language, unspaced_script
from mt_cli.text.normalize import has_loop, is_tokenized

RESAMPLES = 1000
"""Number of bootstrap resamples: sacreBLEU's default."""
MAX_RESAMPLED = 10_000
"""Maximum sentences for a bootstrap: sacreBLEU keeps all resamples in memory, 0.7 GB for chrF2."""
ENOUGH_LINES = 1000
"""Number of references that are enough to find their script."""
MetricName = Literal["BLEU", "chrF2", "TER"]
KEYS: Mapping[MetricName, str] = {"BLEU": "bleu", "chrF2": "chrf", "TER": "ter"}
"""Keys of the metrics in saved records and in `--json`."""
Metrics = Mapping[MetricName, Metric]


@dataclass(frozen=True)
class Score:
    """One score of a set of translations."""

    name: str
    score: float
    """0 to 100; TER has no upper limit, and lower is better."""
    signature: str
    details: dict[str, object]
    """sacreBLEU's own JSON keys."""
    half_width: float | None = None
    """Half the width of the 95 % bootstrap interval."""
    interval: str | None = None
    """The 95 % bootstrap interval (Koehn 2004), if requested, as `sacrebleu --confidence` prints
    it, and its signature with the seed.
    """

    def __str__(self) -> str:
        return f"{self.name} {self.score:.2f}  {self.signature}"


@dataclass(frozen=True)
class Scores:
    """All scores of a set of translations."""

    metrics: Mapping[str, Score]
    """`bleu`, `chrf` and `ter`, in display order."""
    n: int
    """Number of sentences."""
    length_ratio: float
    """Tokens of the translations divided by tokens of the references, as counted by BLEU."""

    def as_json(self) -> dict[str, object]:
        """The scores as `evaluate --json` prints them."""
        details = {key: metric.details for key, metric in self.metrics.items()}
        return {**details, "n": self.n, "length_ratio": self.length_ratio}


def score(
    hyps: Sequence[str], *refs: Sequence[str], lang: str = "", lowercase: bool = False
) -> Scores:
    """Corpus scores of `hyps` against `refs` in the language `lang`, with intervals.

    Each of `refs` has one reference for each of `hyps`. The tokenization for BLEU and TER depends
    on `lang` and on the script of `refs`. BLEU and chrF2 are cased unless `lowercase`; TER never
    is, which is sacreBLEU's default. There is no interval for more than `MAX_RESAMPLED` sentences.
    """
    n_bootstrap = RESAMPLES if len(hyps) <= MAX_RESAMPLED else 1
    scores = {}
    results = []
    for name, metric in make_metrics(refs[0], lang, lowercase=lowercase).items():
        results.append(_corpus_score(metric, hyps, refs, n_bootstrap=n_bootstrap))
        scores[KEYS[name]] = _describe(metric, results[-1])
    return Scores(scores, len(hyps), results[0].ratio)  # type: ignore[attr-defined]


def score_bleu(
    hyps: Sequence[str], refs: Sequence[str], *, lang: str = "", lowercase: bool = False
) -> Score:
    """Corpus BLEU of `hyps` against `refs`, as in `score`, without the slower metrics."""
    metric = make_metrics(refs, lang, lowercase=lowercase)["BLEU"]
    return _describe(metric, _corpus_score(metric, hyps, [refs], n_bootstrap=1))


def sentence_scores(
    metric: Metric, hyps: Sequence[str], refs: Sequence[Sequence[str]]
) -> list[float]:
    """The sentence-level scores of `hyps`; each of `refs` has one reference for each of them."""
    pairs = zip(hyps, zip(*refs, strict=True), strict=True)
    return [float(metric.sentence_score(hyp, list(of_hyp)).score) for hyp, of_hyp in pairs]


def make_metrics(refs: Sequence[str], lang: str = "", *, lowercase: bool = False) -> Metrics:
    """BLEU, chrF2 and TER, configured as for all scores here; `lang` is the language of `refs`."""
    tokenizer = bleu_tokenizer(refs, lang)
    # `symptoms` warns about tokenized text instead of sacreBLEU.
    bleu = BLEU(lowercase=lowercase, tokenize=tokenizer, force=True)
    has_no_spaces = tokenizer != "13a"
    ter = TER(normalized=has_no_spaces, asian_support=has_no_spaces)
    return {"BLEU": bleu, "chrF2": CHRF(lowercase=lowercase), "TER": ter}


def bleu_tokenizer(refs: Sequence[str], lang: str = "") -> str:
    """The name of sacreBLEU's tokenizer for `refs`; `lang` is their language if known.

    This is sacreBLEU's choice for the language: zh, ja-mecab, ko-mecab, else 13a. If a package for
    it is missing (sacrebleu[ja], sacrebleu[ko]), and for other scripts without spaces between
    words, it is char.
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
    try:
        BLEU(trg_lang=language)
    except (RuntimeError, ImportError):
        return False
    return True


def _corpus_score(
    metric: Metric, hyps: Sequence[str], refs: Sequence[Sequence[str]], *, n_bootstrap: int
) -> MetricScore:
    try:
        result: MetricScore = metric.corpus_score(
            list(hyps), list(map(list, refs)), n_bootstrap=n_bootstrap
        )
    except TypeError:
        # sacreBLEU 2.6.0 cannot average resamples if one scores 0; then there is no interval.
        metric.n_bootstrap = None
        result = metric.corpus_score(list(hyps), list(map(list, refs)))
    return result


def _describe(metric: Metric, result: MetricScore) -> Score:
    """Convert `result`, which `metric` has just computed, to a `Score`."""
    signature = metric.get_signature()
    with_resamples = signature.format()
    signature.update("bs", None)
    signature.update("seed", None)
    plain = signature.format()
    details = json.loads(result.format(width=2, signature=with_resamples, is_json=True))
    details |= {"score": result.score, "signature": plain}
    if "confidence" not in details:
        return Score(result.name, result.score, plain, details)
    exact = json.loads(result.format(width=10, signature=with_resamples, is_json=True))
    for key in ("confidence_mean", "confidence_var"):
        details[key] = exact[key]
    details["confidence_signature"] = with_resamples
    mean = exact["confidence_mean"]
    half_width = float(exact["confidence_var"])
    interval = f"{mean:.2f} ± {half_width:.2f}  {with_resamples}"
    return Score(result.name, result.score, plain, details, half_width, interval)


NORMAL_TOKENIZED = 0.1
"""Share of lines that may look tokenized without a warning."""
NORMAL_LOOPS = 0.02
"""Share of translations that may repeat themselves without a warning."""


def symptoms(hyps: Sequence[str], refs: Sequence[str]) -> list[str]:
    """Warnings about suspicious `hyps` or `refs`."""
    found = []
    tokenized = _lines_that(is_tokenized, hyps)
    tokenized_refs = _lines_that(is_tokenized, refs)
    if tokenized_refs and len(tokenized_refs) >= NORMAL_TOKENIZED * len(refs):
        found.append(
            f"{len(tokenized_refs)} of {len(refs)} references look tokenized (a space before the "
            f"last mark), such as line {tokenized_refs[0]}, so the scores are misleading; use "
            "detokenized references"
        )
    elif tokenized and len(tokenized) - len(tokenized_refs) >= NORMAL_TOKENIZED * len(hyps):
        found.append(
            f"{len(tokenized)} of {len(hyps)} translations look tokenized (a space before the last "
            f"mark), such as line {tokenized[0]}, so the scores are misleading; score detokenized "
            "text"
        )
    loops = _lines_that(has_loop, hyps)
    if loops and len(loops) - len(_lines_that(has_loop, refs)) >= NORMAL_LOOPS * len(hyps):
        found.append(
            f"{len(loops)} of {len(hyps)} translations repeat themselves, for example line "
            f"{loops[0]}; train longer, or evaluate and translate with --no-repeat-ngram 4"
        )
    return found


def _lines_that(has_symptom: Callable[[str], bool], lines: Sequence[str]) -> list[int]:
    """Line numbers, from 1, of the lines with a symptom."""
    return [number for number, line in enumerate(lines, start=1) if has_symptom(line)]
