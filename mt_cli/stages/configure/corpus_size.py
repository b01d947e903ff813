"""How large a corpus is: what the keys of its config depend on.

Counts bytes and words of raw pairs; knows no tokenizer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mt_cli.artefacts.corpora import RawPair
from mt_cli.text.normalize import decode_line, normalize

BYTES_PER_TOKEN = 3
"""Measured, with a batch's padding: 2.3 for the few subwords of 675 pairs, 3.7 for Multi30k's 8,000. Chinese
and Japanese letters have three each."""
MOST_WORDS = 50_000
"""Distinct words that are counted; more make no difference to any key, and take memory."""


@dataclass(frozen=True)
class CorpusSize:
    """The size of some training pairs with text on both sides."""

    num_pairs: int
    num_bytes: int
    """Of both sides, normalised, in UTF-8."""
    num_words: int
    """Distinct words of both sides, `MOST_WORDS` at most."""
    num_letters: int
    """Distinct characters of both sides."""

    @property
    def num_tokens(self) -> int:
        """About as many subwords as both sides have."""
        return self.num_bytes // BYTES_PER_TOKEN


def measure(pairs: Iterable[RawPair]) -> CorpusSize:
    """Read `pairs` once and count."""
    num_pairs = num_bytes = 0
    words: set[str] = set()
    letters: set[str] = set()
    for pair in pairs:
        src, tgt = (normalize(decode_line(raw), lowercase=False) for raw in pair)
        if src and tgt:
            num_pairs += 1
            num_bytes += len(src.encode()) + len(tgt.encode())
            letters.update(src, tgt)
            if len(words) < MOST_WORDS:
                words.update(src.split(), tgt.split())
    return CorpusSize(num_pairs, num_bytes, min(len(words), MOST_WORDS), len(letters - {" "}))
