"""`Reranker`: of a run's best translations, the one that a run of the other direction likes best too.

The score is log p(y|x) + lambda log p(x|y) + mu |y|: that of Yee et al. (2019) without a language model, and
with a reward for each token in place of their normalised lengths. Knows lines, no files or streams.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.exported_run import AnyRun
from mt_cli.artefacts.run import Run, open_run
from mt_cli.config import Device
from mt_cli.errors import UsageError
from mt_cli.translation.lines import Translation, checked_lines
from mt_cli.translation.options import SearchOptions
from mt_cli.translation.pair_scorer import PairScore, PairScorer
from mt_cli.translation.translator import Translator

LINES_AT_ONCE = 128
"""Searched, then scored; their candidates are all that is in memory."""


@dataclass(frozen=True)
class RerankWeights:
    """What counts beside the translation's own log-probability; the defaults suited Multi30k's val."""

    reverse: float = 0.3
    """Lambda, of the source's log-probability given the translation."""
    length: float = 0.25
    """Mu, of the number of the translation's tokens, `</s>` included."""

    def total(self, candidate: Translation, reverse: PairScore) -> float:
        """The score of `candidate`, which `reverse` translates back; minus infinity if that is impossible."""
        if math.isinf(reverse.log_prob):
            return -math.inf  # and not a weight of 0 times infinity, which is no number
        num_tokens = len(candidate.tokens) + 1
        return candidate.log_prob + self.reverse * reverse.log_prob + self.length * num_tokens


@dataclass(frozen=True)
class Reranking:
    """Which run of the other direction chooses among translations, and how."""

    run_dir: Path
    weights: RerankWeights
    num_candidates: int = 20
    """Translations of a line to choose from: all beams of its search."""

    def open_run(self, *, of: AnyRun) -> Run:
        """The run, which has to translate back what the run `of` translates.

        Raises:
            UsageError: it does not, or there is no such run.
        """
        reverse = open_run(self.run_dir)
        ours, theirs = of.config.data, reverse.config.data
        if (theirs.src_lang, theirs.tgt_lang) != (ours.tgt_lang, ours.src_lang):
            raise UsageError(
                f"{reverse.folder} translates {theirs.src_lang} to {theirs.tgt_lang}; to rerank, name a run "
                f"from {ours.tgt_lang} to {ours.src_lang}"
            )
        return reverse


class Reranker:
    """Translates lines; of each, takes the candidate with the best weighted score."""

    def __init__(
        self, translator: Translator, reverse: PairScorer, weights: RerankWeights, *, num_candidates: int
    ) -> None:
        """`translator` has as many beams as there are candidates; `reverse` scores in the other direction."""
        self._translator = translator
        self._reverse = reverse
        self._weights = weights
        self._num_candidates = num_candidates

    @classmethod
    def load(
        cls,
        translator: Translator,
        reranking: Reranking,
        *,
        checkpoint: str = "best",
        device: Device = "auto",
        threads: int = 0,
        search: SearchOptions,
    ) -> "Reranker":
        """Reranker of what `translator` finds; of `search`, the batch size and the precision count.

        `checkpoint` is the reranking run's.

        Raises:
            UsageError: there is no such run or checkpoint.
        """
        reverse = PairScorer.load(
            [reranking.run_dir], checkpoint=checkpoint, device=device, threads=threads, search=search
        )
        return cls(translator, reverse, reranking.weights, num_candidates=reranking.num_candidates)

    def translate(
        self, lines: Iterable[str], *, on_progress: Callable[[int], None] | None = None
    ) -> list[str]:
        """The chosen translation of each of `lines`, in order; `on_progress` counts lines that are done.

        Of candidates that all are impossible, as those of a line that is longer than the model takes, the
        first is chosen. A translation's own log-probability is that of the search: without `</s>` where the
        search ended at its limit.
        """
        sources, chosen = checked_lines(lines), list[str]()
        for begin in range(0, len(sources), LINES_AT_ONCE):
            portion = sources[begin : begin + LINES_AT_ONCE]
            chosen += self._chosen(portion)
            if on_progress is not None:
                on_progress(len(portion))
        return chosen

    def _chosen(self, sources: Sequence[str]) -> Iterator[str]:
        found = self._translator.translate_n_best(sources, n_best=self._num_candidates)
        candidates = [_distinct(of_line) for of_line in found]
        pairs = [
            (each.text, src) for src, of_line in zip(sources, candidates, strict=True) for each in of_line
        ]
        scores = iter(self._reverse.score(*map(list, zip(*pairs, strict=True)), warns=False))
        for of_line in candidates:
            totals = {each.text: self._weights.total(each, next(scores)) for each in of_line}
            # `max` takes the first of equals: where nothing can be said, the search's own choice stays.
            yield max(totals, key=totals.__getitem__)


def _distinct(translations: Iterable[Translation]) -> list[Translation]:
    """The first of each text."""
    by_text: dict[str, Translation] = {}
    for each in translations:
        by_text.setdefault(each.text, each)
    return list(by_text.values())
