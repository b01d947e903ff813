"""`Reranker`: of a run's best translations, the one that a run of the other direction likes best too.

The score is log p(y|x) + lambda log p(x|y) + mu |y| (Yee et al. 2019). Knows lines, no files or streams.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mt_cli.artefacts.run import Run, open_run
from mt_cli.config import Device
from mt_cli.errors import UsageError
from mt_cli.translation.options import SearchOptions
from mt_cli.translation.pair_scorer import PairScore, PairScorer
from mt_cli.translation.translator import Translator


@dataclass(frozen=True)
class RerankWeights:
    """What counts beside the translation's own log-probability; the defaults suited Multi30k's val."""

    reverse: float = 0.3
    """Lambda, of the source's log-probability given the translation."""
    length: float = 0.25
    """Mu, of the number of the translation's tokens, `</s>` included."""

    def total(self, forward: PairScore, reverse: PairScore) -> float:
        """The score of a candidate; minus infinity if either direction is impossible."""
        if math.isinf(forward.log_prob) or math.isinf(reverse.log_prob):
            return -math.inf  # and not a weight of 0 times infinity, which is no number
        return forward.log_prob + self.reverse * reverse.log_prob + self.length * forward.num_tokens


@dataclass(frozen=True)
class Reranking:
    """Which run of the other direction chooses among translations, and how."""

    run_dir: Path
    weights: RerankWeights
    num_candidates: int = 20
    """Translations of a line to choose from: all beams of its search."""


class Reranker:
    """Translates lines; of each, takes the candidate with the best weighted score."""

    def __init__(
        self,
        translator: Translator,
        forward: PairScorer,
        reverse: PairScorer,
        weights: RerankWeights,
        *,
        num_candidates: int,
    ) -> None:
        """`forward` scores in the direction of `translator`, whose beams suffice, `reverse` in the other."""
        self._translator = translator
        self._forward = forward
        self._reverse = reverse
        self._weights = weights
        self._num_candidates = num_candidates

    @classmethod
    def load(
        cls,
        translator: Translator,
        run_dirs: Sequence[Path],
        reranking: Reranking,
        *,
        checkpoint: str = "best",
        device: Device = "auto",
        threads: int = 0,
        search: SearchOptions,
    ) -> "Reranker":
        """Reranker of what `translator`, made of `run_dirs`, finds.

        Of the reranking run, the best checkpoint counts; of `search`, the batch size and the precision.

        Raises:
            UsageError: there is no such run, or the reranking one is not of the other direction.
        """
        check_is_reverse(open_run(reranking.run_dir), of=open_run(run_dirs[0]))
        return cls(
            translator,
            PairScorer.load(run_dirs, checkpoint=checkpoint, device=device, threads=threads, search=search),
            PairScorer.load([reranking.run_dir], device=device, threads=threads, search=search),
            reranking.weights,
            num_candidates=reranking.num_candidates,
        )

    def translate(
        self, lines: Iterable[str], *, on_progress: Callable[[int], None] | None = None
    ) -> list[str]:
        """The chosen translation of each of `lines`, in order; `on_progress` counts lines that are searched.

        Of candidates that all are impossible, as those of a line that is longer than the model takes, the
        first is chosen.
        """
        sources = list(lines)
        found = self._translator.translate_n_best(
            sources, n_best=self._num_candidates, on_progress=on_progress
        )
        candidates = [list(dict.fromkeys(each.text for each in of_line)) for of_line in found]
        pairs = [(src, tgt) for src, of_line in zip(sources, candidates, strict=True) for tgt in of_line]
        src, tgt = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        forward = self._forward.score(src, tgt, warns=False)
        reverse = self._reverse.score(tgt, src, warns=False)
        totals = map(self._weights.total, forward, reverse)
        # `max` takes the first of equals: where nothing can be said, the search's own choice stays.
        return [
            max(zip(islice(totals, len(of_line)), of_line, strict=True), key=lambda scored: scored[0])[1]
            for of_line in candidates
        ]


def check_is_reverse(reverse: Run, *, of: Run) -> None:
    """Make sure that `reverse` translates back what the run `of` translates.

    Raises:
        UsageError: it does not.
    """
    ours, theirs = of.config.data, reverse.config.data
    if (theirs.src_lang, theirs.tgt_lang) != (ours.tgt_lang, ours.src_lang):
        raise UsageError(
            f"{reverse.folder} translates {theirs.src_lang} to {theirs.tgt_lang}; to rerank, name a run from "
            f"{ours.tgt_lang} to {ours.src_lang}"
        )
