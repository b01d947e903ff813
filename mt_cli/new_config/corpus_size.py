"""The size of a training corpus: pairs, bytes, and tokens as far as a sample tells."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mt_cli.config.schema import MORE, TRAIN, Config
from mt_cli.data.augment import NoisyPairs
from mt_cli.data.corpora import Corpus, RawPair
from mt_cli.data.filter import drop_reason, text_options
from mt_cli.errors import DataError
from mt_cli.text.normalize import decode_line, normalize
from mt_cli.text.tokenizers import Tokenizers, learn_tokenizers, sampled

MAX_WORDS = 50_000
"""Distinct words that are counted; more make no difference to any key, and take memory."""
SAMPLE_SIZE = 10_000
"""Pairs that are tokenized."""
PADDING = 1.08
"""Tokens of a batch with padding, over those without: as batches of like lengths have it."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class CorpusSize:
    """Training pairs with text on both sides, counted in one pass."""

    num_pairs: int
    num_bytes: int
    """Of both sides, normalized, in UTF-8."""
    num_words: int
    """Distinct words of both sides, `MAX_WORDS` at most."""
    num_letters: int
    """Distinct characters of both sides."""
    sample: list[Pair]
    """Some of the pairs, normalized."""


def measure(pairs: Iterable[RawPair], *, lowercase: bool = False) -> CorpusSize:
    """Read `pairs` once and count."""
    num_bytes = 0
    num_pairs = 0
    words: set[str] = set()
    letters: set[str] = set()

    def counted() -> Iterator[Pair]:
        nonlocal num_bytes, num_pairs
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
            yield src, tgt

    sample = sampled(counted(), SAMPLE_SIZE, seed=0)
    num_letters = len(letters - {" "})
    return CorpusSize(num_pairs, num_bytes, min(len(words), MAX_WORDS), num_letters, sample)


@dataclass(frozen=True)
class TokenCount:
    """Tokens of an epoch, as far as a sample tells."""

    num_pairs: int
    num_tokens: int
    """Of both sides together."""
    num_wider_tokens: int
    """Of the wider side of each pair, `</s>` included: what fills batches."""
    vocab_size: int
    """Entries of both sides."""

    def updates(self, tokens_per_batch: int, accumulation: int = 1) -> int:
        """Updates of an epoch."""
        tokens_per_update = tokens_per_batch * accumulation
        return max(1, math.ceil(PADDING * self.num_wider_tokens / tokens_per_update))


def count_tokens(
    config: Config, corpus: Corpus, size: CorpusSize, tokenizers: Tokenizers | None = None
) -> TokenCount:
    """The tokens of the pairs that `config` trains on, whose own part has this `size`.

    Without `tokenizers`, they are learned from the sample.

    Raises:
        DataError: no pair of the sample is trained on.
    """
    options = text_options(config.data)
    kept = []
    for src, tgt in size.sample:
        if not drop_reason(src, tgt, config.data.filter, options):
            kept.append((src, tgt))
    if tokenizers is None:
        tokenizers = learn_tokenizers(kept, config.tokenizer, options)
    num_pairs = 0
    num_tokens = 0
    num_wider = 0
    src_ids = tokenizers.src.encode([src for src, _ in kept])
    tgt_ids = tokenizers.tgt.encode([tgt for _, tgt in kept])
    for src_length, tgt_length in zip(map(len, src_ids), map(len, tgt_ids), strict=True):
        if max(src_length, tgt_length) <= config.data.max_len:
            num_pairs += 1
            num_tokens += src_length + tgt_length
            num_wider += max(src_length, tgt_length) + 1
    if not num_pairs:
        raise DataError(
            f"{corpus[TRAIN].src}: no pair is left to train on: each is empty, longer than "
            f"data.max_len = {config.data.max_len} tokens, or left out by data.filter"
        )
    epoch_pairs = float(size.num_pairs)
    for name, more in config.data.more.items():
        if f"{MORE}{name}" in corpus:
            epoch_pairs += more.share * sum(1 for _ in corpus[f"{MORE}{name}"].pairs())
    noisy = NoisyPairs.of(corpus, config.data)
    if noisy is not None:
        epoch_pairs += config.data.augment.share * sum(1 for _ in noisy.pairs())
    times = epoch_pairs / len(size.sample)
    vocab_size = tokenizers.src.vocab_size
    if not tokenizers.joint:
        vocab_size += tokenizers.tgt.vocab_size
    return TokenCount(
        round(num_pairs * times), round(num_tokens * times), round(num_wider * times), vocab_size
    )
