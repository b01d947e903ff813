"""`Engine`: what searches for translations; source ids in, hypotheses out.

Imports no torch: an exported model does without it. Letters: S source length, T target length.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import DecodingConfig
from mt_cli.data.lengths import TrainingLengths
from mt_cli.decoding.hypothesis import Hyp, Ids, OnDone
from mt_cli.decoding.sampling import Sampling

if TYPE_CHECKING:
    from mt_cli.model.translation_model import TranslationModel

ALIGNED_TOGETHER = 256
"""Translations whose attention is in memory at a time."""
CrossAttention = NDArray[np.float32]
"""(T, S): how much each id of a hypothesis attends to each id of its source."""


class Engine(ABC):
    """Searches for hypotheses; no source is empty. `Searcher` is ours."""

    models: "Sequence[TranslationModel]" = ()
    """The models; attention is that of the first. Empty for an exported model."""

    def __init__(
        self,
        config: DecodingConfig,
        *,
        device: str,
        longest_sentence: int,
        lengths: TrainingLengths,
        sampling: Sampling | None = None,
        seed: int = 1,
    ) -> None:
        """`sampling` draws hypotheses at random by `seed`, in place of a search.

        `longest_sentence` is the most ids of a source and of a hypothesis, and `lengths` are those
        of the training data.
        """
        self.config = config
        self.device = device
        self.longest_sentence = longest_sentence
        self.lengths = lengths
        self.sampling = sampling
        self.seed = seed

    def limit(self, src_length: int) -> int:
        """Most ids of the translation of `src_length` ids."""
        factor = self.config.max_len_factor
        if factor is None:
            factor = self.lengths.max_len_factor
        return min(int(factor * src_length) + self.config.max_len_extra, self.longest_sentence)

    def best(self, sources: Sequence[Ids], *, on_done: OnDone | None = None) -> list[list[int]]:
        """The best hypothesis of each of `sources`."""
        if self.sampling is None and self.config.beam_size == 1:
            return self.greedy(sources, on_done=on_done)
        return [hyps[0].ids for hyps in self.n_best(sources, n_best=1, on_done=on_done)]

    @abstractmethod
    def greedy(self, sources: Sequence[Ids], *, on_done: OnDone | None) -> list[list[int]]:
        """The hypothesis that greedy search finds for each of `sources`."""

    @abstractmethod
    def n_best(
        self, sources: Sequence[Ids], *, n_best: int, on_done: OnDone | None = None
    ) -> list[list[Hyp]]:
        """The `n_best` best hypotheses of each of `sources`, the best first."""

    @abstractmethod
    def cross_attention(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[CrossAttention]:
        """The attention of each of `hyps` to its source, without `</s>`.

        Heads are averaged in the last layer but one, whose cross-attention aligns best (Garg et al.
        2019). Of several models, the first is used.
        """

    def align(
        self, sources: Sequence[Ids], hyps: Sequence[Ids], among: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """The place in its source, one of its `among`, that each id of `hyps` attends to most."""
        aligned = []
        for begin in range(0, len(hyps), ALIGNED_TOGETHER):
            part = slice(begin, begin + ALIGNED_TOGETHER)
            attention = self.cross_attention(sources[part], hyps[part])
            for weights, places in zip(attention, among[part], strict=True):
                best = weights[:, list(places)].argmax(-1).tolist()
                aligned.append([places[i] for i in best])
        return aligned
