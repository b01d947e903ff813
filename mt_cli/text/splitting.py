"""Splitting text that is too long to be translated in one piece.

Knows normalised text and a caller's idea of what fits, never tokens or files.
"""

import re
from collections.abc import Callable

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
    parts = _cut(text, SENTENCE_END) or _halve(text, CLAUSE_END) or _halve(text, SPACE)
    if not parts:
        parts = [text[: len(text) // 2], text[len(text) // 2 :]]
    return [each for part in parts for each in split_text(part, fits)]


def _cut(text: str, end: re.Pattern[str]) -> list[str]:
    """`text` cut after every `end`; nothing if there is none."""
    ends = [match.end() for match in end.finditer(text) if match.end() < len(text)]
    return [text[a:b].strip() for a, b in zip([0, *ends], [*ends, len(text)], strict=True)] if ends else []


def _halve(text: str, end: re.Pattern[str]) -> list[str]:
    """`text` cut in two after the `end` nearest to its middle; nothing if there is none."""
    ends = [match.end() for match in end.finditer(text) if match.end() < len(text)]
    if not ends:
        return []
    place = min(ends, key=lambda each: abs(2 * each - len(text)))
    return [text[:place].strip(), text[place:].strip()]
