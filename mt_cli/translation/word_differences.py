"""Which words of a translation its reference does not have, and the other way round.

Knows two lines of text, not what made them.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

PIECE = re.compile(r"\s+|\w+|[^\w\s]")
"""White space, a word, or a mark; every character is in one of them."""


@dataclass(frozen=True)
class Span:
    """A stretch of a line."""

    text: str
    is_shared: bool
    """Whether the other line has the same words in the same order."""


@dataclass(frozen=True)
class WordDifferences:
    """Two lines, cut where they begin and cease to agree; the spans of a line are all of it."""

    hyp: tuple[Span, ...]
    ref: tuple[Span, ...]


def word_differences(hyp: str, ref: str, *, lowercase: bool = False) -> WordDifferences:
    """How `hyp` and `ref` differ; with `lowercase`, capital letters are no difference."""
    hyp_pieces, ref_pieces = PIECE.findall(hyp), PIECE.findall(ref)
    hyp_words, ref_words = (
        [piece.lower() if lowercase else piece for piece in pieces if not piece.isspace()]
        for pieces in (hyp_pieces, ref_pieces)
    )
    blocks = SequenceMatcher(None, hyp_words, ref_words, autojunk=False).get_matching_blocks()
    return WordDifferences(
        hyp=_spans(hyp_pieces, {place for block in blocks for place in range(block.a, block.a + block.size)}),
        ref=_spans(ref_pieces, {place for block in blocks for place in range(block.b, block.b + block.size)}),
    )


def _spans(pieces: Sequence[str], shared_words: Set[int]) -> tuple[Span, ...]:
    flagged = zip(pieces, _flags(pieces, shared_words), strict=True)
    return tuple(
        Span("".join(piece for piece, _ in group), is_shared)
        for is_shared, group in groupby(flagged, key=lambda each: each[1])
    )


def _flags(pieces: Sequence[str], shared_words: Set[int]) -> Iterator[bool]:
    """Whether each piece is shared; white space is, unless it stands between two words that are not."""
    num_words = 0
    for piece in pieces:
        if piece.isspace():
            yield num_words - 1 in shared_words or num_words in shared_words or num_words == 0
        else:
            yield num_words in shared_words
            num_words += 1
