"""`Engine`: the interface and shared code of all search engines; source ids in, hypotheses out."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import DecodingConfig
from mt_cli.data.encoded import TrainingLengths
from mt_cli.decoding import Hyp, Ids, OnDone, wu_length_penalty

if TYPE_CHECKING:
    from mt_cli.model.model import TranslationModel

ALIGNED_TOGETHER = 256
"""Number of translations whose attention is in memory at a time."""
CrossAttention = NDArray[np.float32]
"""(T, S): how much each id of a hypothesis attends to each id of its source."""


class Engine(ABC):
    """Searches for hypotheses; sources must not be empty."""

    def __init__(
        self,
        config: DecodingConfig,
        *,
        device: str,
        longest_sentence: int,
        lengths: TrainingLengths,
    ) -> None:
        """`longest_sentence` is the maximum number of ids of a source or a hypothesis.

        `lengths` describes the training data.
        """
        self.config = config
        self.device = device
        self.longest_sentence = longest_sentence
        self.lengths = lengths

    def with_beam_size(self, beam_size: int | None) -> "Engine":
        """The engine with another beam size; unchanged if that is None or the engine samples."""
        if beam_size in (None, self.config.beam_size) or self.config.temperature:
            return self
        other = copy(self)
        other.config = DecodingConfig.model_validate(
            {**self.config.model_dump(), "beam_size": beam_size}
        )
        return other

    def limit(self, src_length: int, prefix_length: int = 0) -> int:
        """Maximum number of ids of a translation, for a source and a prefix of these lengths."""
        factor = self.config.max_len_factor
        if factor is None:
            factor = self.lengths.max_len_factor
        usual = max(int(factor * src_length), prefix_length) + self.config.max_len_extra
        return min(usual, self.longest_sentence)

    def close(self) -> None:  # noqa: B027 — most engines have nothing to free
        """Free threads and memory; a closed engine cannot search."""

    @property
    def models(self) -> "Sequence[TranslationModel]":
        """The models, of which the first provides the attention; empty for an exported model."""
        return ()

    @abstractmethod
    def search(
        self,
        sources: Sequence[Ids],
        *,
        prefixes: Sequence[Ids] = (),
        n_best: int = 1,
        is_scored: bool = True,
        on_done: OnDone | None = None,
    ) -> list[list[Hyp]]:
        """The `n_best` best hypotheses of each source, the best first.

        Each begins with its source's entry of `prefixes`, if there are any. A prefix must be
        shorter than `longest_sentence`; its tokens count as certain. Without `is_scored`, scores
        may be 0.
        """

    @abstractmethod
    def cross_attention(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[CrossAttention]:
        """The attention of each hypothesis to its source, without `</s>`.

        It is the mean over the heads of the last layer but one, whose cross-attention aligns best
        (Garg et al. 2019). An ensemble uses its first model.
        """

    @abstractmethod
    def token_log_probs(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of each id of each hypothesis, and of `</s>` after them."""

    def scored(
        self, sources: Sequence[Ids], hyps: Sequence[list[int]], prefix_lengths: Sequence[int]
    ) -> list[Hyp]:
        """Each of `hyps` with the model's probability of everything after the prefix."""
        found = []
        all_log_probs = self.token_log_probs(sources, hyps)
        for src, ids, given, log_probs in zip(
            sources, hyps, prefix_lengths, all_log_probs, strict=True
        ):
            # The last one is for `</s>`, which a hypothesis at its limit does not have.
            ended = log_probs[: self.limit(len(src), given)]
            log_prob = sum(ended[given:])
            divisor = wu_length_penalty(len(ended), self.config.length_penalty)
            found.append(Hyp(ids, log_prob / divisor, log_prob))
        return found

    def attentions(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> Iterator[CrossAttention]:
        """The `cross_attention` of each hypothesis, with only a few in memory at a time."""
        for begin in range(0, len(hyps), ALIGNED_TOGETHER):
            part = slice(begin, begin + ALIGNED_TOGETHER)
            yield from self.cross_attention(sources[part], hyps[part])
