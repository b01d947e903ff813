"""`Reranker`: a choice among the beams of a line by a model of the other direction."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mt_cli.runs.opening import open_run_between
from mt_cli.runs.run import ModelFolder, Run
from mt_cli.translation.lines import Translation
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.scorer import PairScore, PairScorer


@dataclass(frozen=True)
class Reranking:
    """The run of the other direction that chooses, and weights, tuned on Multi30k's val.

    The score is log p(y|x) + lambda log p(x|y) + mu |y|: that of Yee et al. (2019) without a
    language model, and with a reward for each token in place of their normalised lengths.
    """

    run_dir: Path
    reverse: float = 0.3
    """Lambda, the weight of the source's log-probability given the translation."""
    length: float = 0.25
    """Mu, the weight of the number of the translation's tokens, `</s>` included."""
    checkpoint: str = "best"

    def open_run(self, *, of: ModelFolder) -> Run:
        """The run, which has to translate back what the run `of` translates.

        Raises:
            UsageError: it does not, or there is no such run.
        """
        data = of.config.data
        return open_run_between(
            data.tgt_lang, data.src_lang, self.run_dir, asked_by="--rerank-with"
        )

    def total(self, candidate: Translation, reverse: PairScore) -> float:
        """The score of `candidate`; minus infinity if translating back is impossible."""
        if math.isinf(reverse.log_prob):
            return -math.inf  # not NaN, which 0 times infinity is
        num_tokens = len(candidate.tokens) + 1
        return candidate.log_prob + self.reverse * reverse.log_prob + self.length * num_tokens


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
                totals[text] = self._reranking.total(translation, next(reverse))
            # `max` takes the first of equals: the search's own choice.
            chosen.append(max(totals, key=totals.__getitem__))
        return chosen
