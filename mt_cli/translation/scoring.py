"""BLEU and chrF by sacreBLEU, never without their signatures.

Knows detokenised lines, not where they come from.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # sacreBLEU is imported when something is scored
    from sacrebleu.metrics.base import Metric


@dataclass(frozen=True)
class Score:
    """One metric's verdict on a set of translations."""

    name: str
    score: float
    """0 to 100."""
    signature: str
    details: dict[str, object]
    """sacreBLEU's own JSON keys."""

    def __str__(self) -> str:
        return f"{self.name} {self.score:.2f}  {self.signature}"


@dataclass(frozen=True)
class Scores:
    """What sacreBLEU says of a set of translations."""

    bleu: Score
    chrf: Score
    n: int
    """Sentences."""

    def as_json(self) -> dict[str, object]:
        """The form that `evaluate --json` prints."""
        return {"bleu": self.bleu.details, "chrf": self.chrf.details, "n": self.n}


def score(hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool = False) -> Scores:
    """Corpus BLEU (13a tokens, cased unless `lowercase`) and chrF2 of `hyps` against `refs`."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    return Scores(_score(bleu, hyps, refs), _score(chrf, hyps, refs), len(hyps))


def bleu_signature(*, lowercase: bool = False) -> str:
    """The signature of the BLEU that `score` gives."""
    return score([""], [""], lowercase=lowercase).bleu.signature


def _score(metric: "Metric", hyps: Sequence[str], refs: Sequence[str]) -> Score:
    result = metric.corpus_score(list(hyps), [list(refs)])
    signature = metric.get_signature().format()
    details = json.loads(result.format(width=2, signature=signature, is_json=True))
    details["score"] = result.score
    return Score(result.name, result.score, signature, details)
