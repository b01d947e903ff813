"""Learning tokenizers from the training pairs, in memory that does not grow with them.

Knows normalised text; the stage decides which text that is.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mt_cli.config import TokenizerConfig
from mt_cli.text.subwords import learn_subwords
from mt_cli.text.tokenizer import TextOptions, Tokenizers
from mt_cli.text.vocabulary import learn_vocabulary
from mt_cli.text.words import WordTokenizer, count_words

SAMPLE_SIZE = 500_000
"""Subwords are learned from this many pairs, a million lines; more would change little and cost memory."""


@dataclass(frozen=True)
class WordCounts:
    """How often each word occurs on each side."""

    src: Counter[str] = field(default_factory=Counter)
    tgt: Counter[str] = field(default_factory=Counter)

    def update(self, other: "WordCounts") -> None:
        """Add the counts of further text."""
        self.src.update(other.src)
        self.tgt.update(other.tgt)


class PairSample:
    """A uniform random sample of a stream of pairs (Vitter 1985, algorithm R).

    If there are no more than `size` pairs, it keeps them all, in order.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        self.pairs: list[tuple[str, str]] = []
        self._size = size
        self._seen = 0
        self._random = random.Random(seed)

    def add(self, pair: tuple[str, str]) -> None:
        """Offer the next pair of the stream."""
        self._seen += 1
        if len(self.pairs) < self._size:
            self.pairs.append(pair)
            return
        place = self._random.randrange(self._seen)
        if place < self._size:
            self.pairs[place] = pair


def count_pairs(pairs: Iterable[tuple[str, str]], options: TextOptions) -> WordCounts:
    """Word counts of normalised `pairs`."""
    sources, targets = [], []
    for src, tgt in pairs:
        sources.append(src)
        targets.append(tgt)
    return WordCounts(count_words(sources, options.src_lang), count_words(targets, options.tgt_lang))


def build_word_tokenizers(counts: WordCounts, config: TokenizerConfig, options: TextOptions) -> Tokenizers:
    """Tokenizers with spaCy's rules and vocabularies ordered by frequency."""
    if config.joint:
        src_vocabulary = tgt_vocabulary = learn_vocabulary(
            counts.src + counts.tgt, max_size=config.vocab_size, min_freq=config.min_freq
        )
    else:
        src_vocabulary = learn_vocabulary(counts.src, max_size=config.vocab_size, min_freq=config.min_freq)
        tgt_vocabulary = learn_vocabulary(
            counts.tgt, max_size=config.tgt_vocab_size or config.vocab_size, min_freq=config.min_freq
        )
    return Tokenizers(
        WordTokenizer(options.src_lang, src_vocabulary),
        WordTokenizer(options.tgt_lang, tgt_vocabulary),
        kind=config.kind,
        joint=config.joint,
        options=options,
    )


def learn_subword_tokenizers(
    pairs: list[tuple[str, str]], config: TokenizerConfig, options: TextOptions
) -> Tokenizers:
    """SentencePiece subwords learned from `pairs`."""
    assert config.kind != "spacy"
    sources, targets = (src for src, _ in pairs), (tgt for _, tgt in pairs)
    if config.joint:
        both = (text for pair in pairs for text in pair)
        src = tgt = learn_subwords(both, kind=config.kind, vocab_size=config.vocab_size)
    else:
        src = learn_subwords(sources, kind=config.kind, vocab_size=config.vocab_size)
        tgt = learn_subwords(targets, kind=config.kind, vocab_size=config.tgt_vocab_size or config.vocab_size)
    return Tokenizers(
        src,
        tgt,
        kind=config.kind,
        joint=config.joint,
        options=options,
    )
