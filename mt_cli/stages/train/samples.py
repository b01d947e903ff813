"""A few translations to look at while a model learns, fit to be shown.

Knows text and columns; never models.
"""

import re
import unicodedata
from dataclasses import dataclass

from mt_cli.machine.visible import visible

REPEATED_WORDS = re.compile(r"(?<!\S)(\S+(?: \S+){0,7}?)(?: \1){3,}(?!\S)")
"""Up to eight words that stand four times in a row, or more often."""
REPEATED_LETTERS = re.compile(r"(\S{1,8}?)\1{11,}")
"""Up to eight letters that stand twelve times in a row, or more often."""
SHOWN_REPEATS = 3
LABELS = ("source", "translation", "reference")
INDENT = "  "
ELLIPSIS = "…"


@dataclass(frozen=True)
class Sample:
    """A source with its translation, and what it should have been."""

    source: str
    translation: str
    reference: str

    def lines(self, *, width: int | None = None) -> list[str]:
        """One labelled line for each text, cut to `width` columns; repetition is cut in any case."""
        margin = max(map(len, LABELS))
        texts = (self.source, self.translation, self.reference)
        return [
            cut(f"{INDENT}{label:<{margin}}  {without_repetition(visible(text))}".rstrip(), width)
            for label, text in zip(LABELS, texts, strict=True)
        ]


def without_repetition(text: str) -> str:
    """`text` with whatever comes again and again said three times, and then how often it stood there.

    `a b b b b b c` becomes `a b b b … (×5) c`; a sequence of words is counted in the same way.
    """
    words_cut = REPEATED_WORDS.sub(lambda match: _counted(match, between=" "), text)
    return REPEATED_LETTERS.sub(lambda match: _counted(match, between=""), words_cut)


def cut(line: str, width: int | None) -> str:
    """`line`, or as much of it as fits into `width` columns with an ellipsis."""
    if width is None or columns(line) <= width:
        return line
    kept, used = 0, 0
    while used + columns(line[kept]) < width:  # a column is left for the ellipsis
        used += columns(line[kept])
        kept += 1
    return f"{line[:kept].rstrip()}{ELLIPSIS}"


def columns(text: str) -> int:
    """Columns that a terminal takes for `text`: two for wide letters, none for marks on others."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _counted(match: re.Match[str], *, between: str) -> str:
    """The first group of `match` three times, and how often it stands in all of it."""
    repeats = (len(match[0]) + len(between)) // (len(match[1]) + len(between))
    return f"{between.join([match[1]] * SHOWN_REPEATS)} {ELLIPSIS} (×{repeats})"
