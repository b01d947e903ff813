"""Scoring of given translations by a model, and reranking with such scores."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from mt_cli.config.schema import DecodingConfig
from mt_cli.runs.opening import open_run_between
from mt_cli.runs.run import Run
from mt_cli.text.normalize import normalize, read_capitals
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.translation.engine import Engine
from mt_cli.translation.result import Translation

log = logging.getLogger(__name__)


class PairScore(NamedTuple):
    """The probability of a translation."""

    log_prob: float
    """Natural log-probability, `</s>` included; minus infinity if impossible."""
    num_tokens: int
    """`</s>` included."""


def score_pairs(
    engine: Engine,
    tokenizers: Tokenizers,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    first_line: int | None = None,
) -> list[PairScore]:
    """The score of each pair.

    A pair is impossible if one side is too long for the model, or if only the source is empty: an
    empty line always has an empty translation. Too long pairs are warned about if `first_line`,
    the line number of the first pair, is given.
    """
    src_ids = tokenizers.encode(sources, "src")
    tgt_ids = tokenizers.encode(targets, "tgt")
    scores = [PairScore(-math.inf, len(tgt) + 1) for tgt in tgt_ids]
    possible = []
    for i, (src, tgt) in enumerate(zip(src_ids, tgt_ids, strict=True)):
        if max(len(src), len(tgt)) > engine.longest_sentence:
            if first_line is not None:
                log.warning(
                    "line %d: %d and %d tokens, but the model takes at most %d; the score is "
                    "minus infinity",
                    first_line + i,
                    len(src),
                    len(tgt),
                    engine.longest_sentence,
                )
        elif src:
            possible.append(i)
        elif not tgt:
            scores[i] = PairScore(0.0, 1)
    found = engine.token_log_probs([src_ids[i] for i in possible], [tgt_ids[i] for i in possible])
    for i, log_probs in zip(possible, found, strict=True):
        scores[i] = PairScore(sum(log_probs), len(log_probs))
    return scores


class Reranker:
    """Orders a line's translations by the score of `decoding.rerank_weights`."""

    def __init__(self, reverse: Engine, tokenizers: Tokenizers, weights: tuple[float, ...]) -> None:
        """`reverse` translates back, with its own `tokenizers`."""
        self._reverse = reverse
        self._tokenizers = tokenizers
        self._weights = weights

    def score(self, candidate: Translation, reverse_log_prob: float) -> float:
        """The weighted score; minus infinity if translating back is impossible."""
        if math.isinf(reverse_log_prob):
            return -math.inf  # 0 times infinity would be NaN
        reverse_weight, token_reward = self._weights
        num_tokens = len(candidate.tokens) + 1
        return candidate.log_prob + reverse_weight * reverse_log_prob + token_reward * num_tokens

    def ordered(self, translations: Sequence[Sequence[Translation]]) -> list[list[Translation]]:
        """Rerank the `translations` of each line, the best first, with their weighted scores.

        Translations that miss more glossary terms than the search's best one come last. If all are
        impossible, for example because the line is too long for the reverse model, their order
        stays. The forward log-probability is the search's own: without `</s>` if the search hit its
        limit.
        """
        texts: list[str] = []
        sources: list[str] = []
        for of_line in translations:
            different = dict.fromkeys(translation.text for translation in of_line)
            texts += different
            line = read_capitals(normalize(of_line[0].source), self._reverse.config.capitals)
            sources += [line] * len(different)
        reverse = iter(score_pairs(self._reverse, self._tokenizers, texts, sources))
        ordered = []
        for of_line in translations:
            totals: dict[str, float] = {}
            for translation in of_line:
                if translation.text not in totals:  # of equal texts, the first is the best
                    totals[translation.text] = self.score(translation, next(reverse).log_prob)
            scored = [replace(hyp, score=totals[hyp.text]) for hyp in of_line]
            if max(totals.values()) == -math.inf:
                scored = list(of_line)
            most_missing = len(of_line[0].missing_terms)
            # The sort is stable, so ties keep the search's order.
            scored.sort(key=lambda hyp: (len(hyp.missing_terms) > most_missing, -hyp.score))
            ordered.append(scored)
        return ordered


def reverse_run(config: DecodingConfig, *, of: Run) -> Run:
    """Open the run `config.rerank_with`, which translates in the opposite direction of run `of`.

    Raises:
        UsageError: it translates in another direction, or does not exist.
    """
    assert config.rerank_with is not None
    data = of.config.data
    return open_run_between(
        data.tgt_lang, data.src_lang, config.rerank_with, asked_by="--rerank-with"
    )
