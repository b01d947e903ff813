"""The size of a corpus: pairs, bytes, words, and an estimate of tokens."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mt_cli.config.schema import Config
from mt_cli.data.corpora import RawPair
from mt_cli.data.scan import text_options
from mt_cli.errors import DataError
from mt_cli.text.normalize import decode_line, normalize
from mt_cli.text.tokenizers import Sample, Tokenizers, learn_tokenizers

MAX_WORDS = 50_000
"""Maximum distinct words to count; more would not change any key, and take memory."""
SAMPLE_SIZE = 10_000
"""Number of pairs to tokenize."""
PADDING = 1.08
"""Ratio of tokens with padding to tokens without, in batches of similar lengths."""
Pair = tuple[str, str]


@dataclass(frozen=True)
class CorpusSize:
    """Training pairs with text on both sides, counted in one pass."""

    num_pairs: int
    num_bytes: int
    """UTF-8 bytes of both sides, normalized."""
    num_words: int
    """Distinct words of both sides, at most `MAX_WORDS`."""
    num_letters: int
    """Distinct characters of both sides."""
    sample: list[Pair]
    """A sample of the pairs, normalized."""


def measure(pairs: Iterable[RawPair], *, lowercase: bool = False) -> CorpusSize:
    """Read `pairs` once and count; `lowercase` as in `[data]`."""
    num_bytes = 0
    num_pairs = 0
    words: set[str] = set()
    letters: set[str] = set()
    sample: Sample[Pair] = Sample(SAMPLE_SIZE)
    for raw_src, raw_tgt in pairs:
        src = normalize(decode_line(raw_src), lowercase=lowercase)
        tgt = normalize(decode_line(raw_tgt), lowercase=lowercase)
        if not src or not tgt:
            continue
        num_pairs += 1
        num_bytes += len(src.encode()) + len(tgt.encode())
        letters.update(src, tgt)
        if len(words) < MAX_WORDS:
            words.update(src.split(), tgt.split())
        sample.extend([(src, tgt)])
    num_letters = len(letters - {" "})
    return CorpusSize(num_pairs, num_bytes, min(len(words), MAX_WORDS), num_letters, sample.items)


@dataclass(frozen=True)
class TokenCount:
    """Tokens per epoch, estimated from a sample."""

    num_pairs: int
    num_tokens: int
    """Tokens of both sides together."""
    num_wider_tokens: int
    """Tokens of the longer side of each pair, `</s>` included; they fill the batches."""

    def updates(self, tokens_per_batch: int) -> int:
        """Number of updates per epoch."""
        return max(1, math.ceil(PADDING * self.num_wider_tokens / tokens_per_batch))


def count_tokens(
    config: Config, size: CorpusSize, tokenizers: Tokenizers | None = None
) -> TokenCount:
    """Estimate the tokens of the training pairs for `config`.

    Without `tokenizers`, they are learned from the sample.

    Raises:
        DataError: no pair of the sample is usable for training.
    """
    if tokenizers is None:
        tokenizers = learn_tokenizers(size.sample, config.tokenizer, text_options(config.data))
    src_ids = tokenizers.src.encode([src for src, _ in size.sample])
    tgt_ids = tokenizers.tgt.encode([tgt for _, tgt in size.sample])
    lengths = [(len(src), len(tgt)) for src, tgt in zip(src_ids, tgt_ids, strict=True)]
    kept = [pair for pair in lengths if max(pair) <= config.data.max_len]
    if not kept:
        raise DataError("no pairs left to train on: all are empty or too long for data.max_len")
    times = size.num_pairs / len(size.sample)
    num_tokens = sum(map(sum, kept))
    num_wider = sum(max(pair) + 1 for pair in kept)
    return TokenCount(round(len(kept) * times), round(num_tokens * times), round(num_wider * times))
