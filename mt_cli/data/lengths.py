"""How long the sentences of training were: what a model can be expected to translate."""

from collections import Counter

import numpy as np
from pydantic import BaseModel, ConfigDict

from mt_cli.config.schema import MAX_LENGTH, DecodingConfig
from mt_cli.data.encoded import EncodedSplit

LENGTHS_SHARE = 0.999
"""Share of the training pairs whose sources are no longer than `src_tokens`."""


FACTORS_SHARE = 0.99
"""Share of the training pairs whose targets, beside their sources, are no longer than those that
count.
"""


MARGIN = 1.5
"""How much longer a translation may be than those targets."""


COMMON = 0.05
"""Share of the lines of training that makes a number of sentences common."""


class TrainingLengths(BaseModel):
    """How long the lines of training were, and how much longer their translations."""

    model_config = ConfigDict(frozen=True, strict=True)

    src_tokens: int = MAX_LENGTH
    """Nearly all source lines have at most so many tokens."""
    sentences: int = MAX_LENGTH
    """Source lines of so many sentences are common."""
    max_len_factor: float = 1.5
    """Nearly all targets have at most this many times their source's tokens, and a few more."""

    @staticmethod
    def of(split: EncodedSplit, num_sentences: Counter[int]) -> "TrainingLengths":
        """Those of the pairs `split`, whose source lines have `num_sentences`: lines by number."""
        src = split.src.lengths
        tgt = split.tgt.lengths
        factors = (tgt - DecodingConfig().max_len_extra) / np.maximum(src, 1)
        # "higher" gives what some line has, never a value between two.
        longest = np.quantile(src, LENGTHS_SHARE, method="higher")
        factor = MARGIN * np.quantile(factors, FACTORS_SHARE, method="higher")
        common = 1
        num_lines = 0
        for number in sorted(num_sentences, reverse=True):
            num_lines += num_sentences[number]
            if num_lines >= COMMON * num_sentences.total():
                common = max(1, number)
                break
        return TrainingLengths(
            src_tokens=int(longest),
            sentences=common,
            max_len_factor=max(TrainingLengths().max_len_factor, round(float(factor), 2)),
        )
