"""`Reranker`: a choice among the beams of a line by a model of the other direction."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mt_cli.runs.run import ModelFolder
from mt_cli.translation.lines import Translation
from mt_cli.translation.options import DecodingOptions, Reranking
from mt_cli.translation.scorer import PairScore, PairScorer


def reranking_score(candidate: Translation, reverse: PairScore, reranking: Reranking) -> float:
    """The weighted score of `candidate`; minus infinity if translating back is impossible."""
    if math.isinf(reverse.log_prob):
        return -math.inf  # not NaN, which 0 times infinity is
    num_tokens = len(candidate.tokens) + 1
    return candidate.log_prob + reranking.reverse * reverse.log_prob + reranking.length * num_tokens


class Reranker:
    """Takes the best of a line's translations by a weighted score."""

    def __init__(self, reranking: Reranking, options: DecodingOptions, *, of: ModelFolder) -> None:
        """Choose among what the run `of` finds, computing where and as `options` say.

        Raises:
            UsageError: there is no such run or checkpoint, or it is of another direction.
        """
        self._reranking = reranking
        kept = {key: options.search.get(key) for key in ("batch_size", "precision")}
        own = replace(options, checkpoint=reranking.checkpoint, search=kept)
        self._reverse = PairScorer.of_runs([reranking.open_run(of=of)], own)

    def choose(self, lines: Sequence[str], found: Iterable[Sequence[Translation]]) -> list[str]:
        """The chosen one of the translations `found` of each of `lines`, the likeliest first.

        If all are impossible, as those of a line that is longer than the model takes, the first is
        chosen. A translation's own log-probability is that of the search: without `</s>` where the
        search ended at its limit.
        """
        candidates: list[dict[str, Translation]] = []
        texts: list[str] = []
        sources: list[str] = []
        for line, translations in zip(lines, found, strict=True):
            by_text: dict[str, Translation] = {}
            for each in translations:
                by_text.setdefault(each.text, each)  # the best of those that read the same
            candidates.append(by_text)
            texts += by_text
            sources += [line] * len(by_text)
        reverse = iter(self._reverse.score(texts, sources))
        chosen = []
        for by_text in candidates:
            totals = {}
            for text, translation in by_text.items():
                totals[text] = reranking_score(translation, next(reverse), self._reranking)
            # `max` takes the first of equals: the search's own choice.
            chosen.append(max(totals, key=totals.__getitem__))
        return chosen
