"""BPE-dropout (Provilkov et al. 2020): the same sentences, split into other subwords each time.

Knows ids and tokenizers, never files: the text is put together from the ids, which is exact.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mt_cli.data.encoded import EncodedSplit, Sequences
from mt_cli.data.subwords import SubwordTokenizer
from mt_cli.data.tokenizer import Tokenizer, Tokenizers


class Resegmenter:
    """Splits pairs afresh, leaving out a `dropout` share of the merges that BPE would make."""

    def __init__(self, tokenizers: Tokenizers, *, dropout: float, max_len: int) -> None:
        """A sentence that would get more than `max_len` ids stays as it is."""
        self._tokenizers = tokenizers
        self._dropout = dropout
        self._max_len = max_len

    def __call__(self, split: EncodedSplit, indices: NDArray[np.int64], *, seed: int) -> EncodedSplit:
        """The pairs at `indices` of `split`, in this order, split as `seed` has it."""
        src = self._resegmented(self._tokenizers.src, [split.src[i].tolist() for i in indices], seed)
        tgt = self._resegmented(self._tokenizers.tgt, [split.tgt[i].tolist() for i in indices], seed + 1)
        return EncodedSplit(src, tgt)

    def _resegmented(self, tokenizer: Tokenizer, sentences: Sequence[Sequence[int]], seed: int) -> Sequences:
        assert isinstance(tokenizer, SubwordTokenizer)  # as the config makes sure
        fresh = tokenizer.sample(tokenizer.decode(sentences), seed=seed, alpha=self._dropout)
        kept = [new if len(new) <= self._max_len else old for new, old in zip(fresh, sentences, strict=True)]
        return Sequences.of(kept, vocab_size=tokenizer.vocab_size)
