"""Learning tokenizers from the training pairs, in memory that does not grow with them.

Knows normalised text; the stage decides which text that is.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mt_cli.config import TokenizerConfig
from mt_cli.errors import DataError
from mt_cli.text.subwords import learn_subwords
from mt_cli.text.symbols import SPECIALS
from mt_cli.text.tokenizer import TextOptions, Tokenizers
from mt_cli.text.vocabulary import Vocabulary, learn_vocabulary
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


def count_pairs(pairs: Sequence[tuple[str, str]], options: TextOptions) -> WordCounts:
    """Word counts of normalised `pairs`."""
    return WordCounts(
        count_words([src for src, _ in pairs], options.src_lang),
        count_words([tgt for _, tgt in pairs], options.tgt_lang),
    )


def build_word_tokenizers(counts: WordCounts, config: TokenizerConfig, options: TextOptions) -> Tokenizers:
    """Tokenizers with spaCy's rules and vocabularies ordered by frequency.

    Raises:
        DataError: a vocabulary has no word.
    """

    def learn(words: Counter[str], size: int) -> Vocabulary:
        found = learn_vocabulary(words, max_size=size, min_freq=config.min_freq)
        if len(found) == len(SPECIALS):
            raise DataError(
                f"no word occurs tokenizer.min_freq = {config.min_freq} times in the training text; lower it"
            )
        return found

    if config.joint:
        src = tgt = learn(counts.src + counts.tgt, config.vocab_size)
    else:
        src = learn(counts.src, config.vocab_size)
        tgt = learn(counts.tgt, config.tgt_vocab_size or config.vocab_size)
    return Tokenizers(
        WordTokenizer(options.src_lang, src),
        WordTokenizer(options.tgt_lang, tgt),
        "spacy",
        config.joint,
        options,
    )


def learn_subword_tokenizers(
    pairs: Sequence[tuple[str, str]], config: TokenizerConfig, options: TextOptions
) -> Tokenizers:
    """SentencePiece subwords learned from `pairs`."""
    kind = config.kind
    assert kind != "spacy"
    if config.joint:
        both = (text for pair in pairs for text in pair)
        src = tgt = learn_subwords(both, kind=kind, vocab_size=config.vocab_size)
    else:
        tgt_size = config.tgt_vocab_size or config.vocab_size
        src = learn_subwords((src for src, _ in pairs), kind=kind, vocab_size=config.vocab_size)
        tgt = learn_subwords((tgt for _, tgt in pairs), kind=kind, vocab_size=tgt_size)
    return Tokenizers(src, tgt, kind, config.joint, options)
