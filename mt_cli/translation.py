"""What becomes of a line: the parts that are translated alone, and its translation put together again.

Knows text and tokens, neither models nor search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Translation:
    """One translation of a line."""

    text: str
    score: float
    """Natural logarithm of its probability, over the length penalty; of a line in parts, their sum."""
    tokens: tuple[str, ...] = ()
    src_tokens: tuple[str, ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()
    """(place in `src_tokens`, place in `tokens`) for each of `tokens`, where it was asked for."""


@dataclass(frozen=True)
class Part:
    """A line, or as much of it as the model can take at once."""

    text: str
    """Normalised, as the user wrote it."""
    ids: list[int]


def joined(parts: Sequence[Translation]) -> Translation:
    """The translation of a line of which `parts` are the translations."""
    if len(parts) == 1:
        return parts[0]
    src_starts = [0, *accumulate(len(part.src_tokens) for part in parts)]
    starts = [0, *accumulate(len(part.tokens) for part in parts)]
    return Translation(
        " ".join(part.text for part in parts if part.text),
        sum(part.score for part in parts),
        tokens=tuple(token for part in parts for token in part.tokens),
        src_tokens=tuple(token for part in parts for token in part.src_tokens),
        alignment=tuple(
            (src + src_start, tgt + start)
            for part, src_start, start in zip(parts, src_starts, starts, strict=False)
            for src, tgt in part.alignment
        ),
    )
