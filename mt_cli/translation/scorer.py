"""How likely models find translations, and reranking by it."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mt_cli.config.schema import DecodingConfig
from mt_cli.decoding import Ids
from mt_cli.runs.run import Run, open_run_between
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.translation.lines import Translation
from mt_cli.translation.options import DecodingOptions

if TYPE_CHECKING:  # torch is imported when something is scored
    from mt_cli.machine.device import Runtime
    from mt_cli.model.model import TranslationModel

log = logging.getLogger(__name__)

MAX_TOKENS = {"cpu": 1 << 11, "cuda": 1 << 15, "mps": 1 << 15}
"""Positions of a batch, padding included."""
MAX_LOGITS = {"cpu": 1 << 24, "cuda": 1 << 28, "mps": 1 << 28}
"""At each position, the whole vocabulary is predicted."""


PairScore = tuple[float, int]
"""Natural logarithm of a translation's probability, and the number of its tokens, both with `</s>`;
minus infinity if it is impossible.
"""


class PairScorer:
    """Scores pairs of lines with a trained model, or with several as an ensemble."""

    def __init__(
        self,
        models: "Sequence[TranslationModel]",
        tokenizers: Tokenizers,
        *,
        runtime: "Runtime",
        batch_size: int = 0,
    ) -> None:
        """`batch_size` is the most pairs at once; 0 is as many as suit the device."""
        self._models = [model.to(runtime.device).eval() for model in models]
        self._longest = min(model.longest_sentence for model in models)
        self._tokenizers = tokenizers
        self._runtime = runtime
        self._batch_size = batch_size

    @classmethod
    def of_runs(cls, runs: Sequence[Run], options: DecodingOptions) -> "PairScorer":
        """Scorer of opened `runs`; of the search, only the batch size and the precision count.

        Raises:
            UsageError: no such checkpoint, or an option out of range.
        """
        config = options.config_of(runs[0])
        runtime = options.set_up_runtime(config)
        models = []
        for run, name in zip(runs, options.checkpoints_of(runs), strict=True):
            models.append(run.load_model(checkpoint=name, backend=options.backend))
        return cls(models, runs[0].tokenizers, runtime=runtime, batch_size=config.batch_size)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, first_line: int | None = None
    ) -> list[PairScore]:
        """The score of each pair; `first_line` is the line number of the first, for warnings.

        Without it there are no warnings. The translation of an empty line is empty, for certain, so
        any other is impossible. A pair with a side that is too long for the model is impossible
        too, and a warning says so.
        """
        from mt_cli.translation.searcher import in_halves, token_log_probs

        src_ids = self._tokenizers.encode(sources, "src")
        tgt_ids = self._tokenizers.encode(targets, "tgt")
        scores = [(-math.inf, len(tgt) + 1) for tgt in tgt_ids]
        possible = []
        for i, (src, tgt) in enumerate(zip(src_ids, tgt_ids, strict=True)):
            if max(len(src), len(tgt)) > self._longest:
                if first_line is not None:
                    log.warning(
                        "line %d: %d and %d tokens, but the model takes %d: its score is minus "
                        "infinity",
                        first_line + i,
                        len(src),
                        len(tgt),
                        self._longest,
                    )
            elif src:
                possible.append(i)
            elif not tgt:
                scores[i] = (0.0, 1)
        for batch in self._batches(possible, src_ids, tgt_ids):
            pairs = [(src_ids[i], tgt_ids[i]) for i in batch]
            work = partial(token_log_probs, self._models, runtime=self._runtime)
            for i, log_probs in zip(batch, in_halves(work, pairs), strict=True):
                scores[i] = (sum(log_probs), len(log_probs))
        return scores

    def _batches(
        self, places: Sequence[int], src_ids: Sequence[Ids], tgt_ids: Sequence[Ids]
    ) -> Iterator[list[int]]:
        """`places` in batches of like lengths, the longest first."""

        def length(i: int) -> int:
            return max(len(src_ids[i]), len(tgt_ids[i])) + 1

        device = self._runtime.device.type
        positions = min(MAX_TOKENS[device], MAX_LOGITS[device] // self._tokenizers.tgt.vocab_size)
        order = sorted(places, key=length, reverse=True)
        while order:
            most = max(1, positions // length(order[0]))
            size = min(most, self._batch_size or most)
            yield order[:size]
            order = order[size:]


class Reranker:
    """Takes the best of a line's translations by the score of `decoding.rerank_weights`."""

    def __init__(self, config: DecodingConfig, options: DecodingOptions, *, of: Run) -> None:
        """Choose among what the run `of` finds, computing where and as `options` say.

        Raises:
            UsageError: there is no such run or checkpoint, or it is of another direction.
        """
        self._weights = config.rerank_weights
        self._reverse = PairScorer.of_runs(
            [reverse_run(config, of=of)],
            DecodingOptions(
                device=options.device,
                threads=options.threads,
                search={"batch_size": config.batch_size, "precision": config.precision},
                owns_process=options.owns_process,
            ),
        )

    def score(self, candidate: Translation, reverse_log_prob: float) -> float:
        """The weighted score; minus infinity if translating back is impossible."""
        if math.isinf(reverse_log_prob):
            return -math.inf  # not NaN, which 0 times infinity is
        reverse_weight, token_reward = self._weights
        num_tokens = len(candidate.tokens) + 1
        return candidate.log_prob + reverse_weight * reverse_log_prob + token_reward * num_tokens

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
                reverse_log_prob, _ = next(reverse)
                totals[text] = self.score(translation, reverse_log_prob)
            # `max` takes the first of equals: the search's own choice.
            chosen.append(max(totals, key=totals.__getitem__))
        return chosen


def reverse_run(config: DecodingConfig, *, of: Run) -> Run:
    """The run that `config.rerank_with` names, which translates back what the run `of` translates.

    Raises:
        UsageError: it does not, or there is no such run.
    """
    assert config.rerank_with is not None
    data = of.config.data
    return open_run_between(
        data.tgt_lang, data.src_lang, config.rerank_with, asked_by="--rerank-with"
    )
