"""Splitting text that is too long to be translated in one piece.

Knows normalised text and a caller's idea of what fits, never tokens or files.
"""

import re
from collections.abc import Callable
from itertools import pairwise

SENTENCE_END = re.compile(r"[.!?…][\"”“’»«)\]]* ")
CLAUSE_END = re.compile(r"[,;:–][\"”“’»«)\]]* ")
SPACE = re.compile(" ")


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts of `text`, in order, each of which `fits`, unless it is a single character.

    Text of several sentences is cut into sentences. A part that is still too long is halved after a clause,
    else after a word, else anywhere, at the place nearest to its middle.
    """
    if fits(text) or len(text) == 1:
        return [text]
    places = (
        _ends(text, SENTENCE_END)
        or _nearest_end(text, CLAUSE_END)
        or _nearest_end(text, SPACE)
        or [len(text) // 2]
    )
    parts = (text[a:b].strip() for a, b in pairwise([0, *places, len(text)]))
    return [each for part in parts for each in split_text(part, fits)]


def _ends(text: str, end: re.Pattern[str]) -> list[int]:
    """Places after every `end` within `text`."""
    return [match.end() for match in end.finditer(text) if match.end() < len(text)]


def _nearest_end(text: str, end: re.Pattern[str]) -> list[int]:
    """The place after the `end` nearest to the middle of `text`; none if there is no `end`."""
    return sorted(_ends(text, end), key=lambda place: abs(2 * place - len(text)))[:1]
