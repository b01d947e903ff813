"""Symptoms of a broken system that a score alone does not show: tokenised output, and loops.

Knows lines, not what made them.
"""

import re
from collections.abc import Callable, Sequence

TOKENISED_LINE = re.compile(r"\s[.,!?]\s*$")
"""A space before the last mark, as in "A dog runs ." """
WORD = re.compile(r"\w+")
LOOPS = {1: 4, 2: 3, 3: 3, 4: 3}
"""Words in a row, and how many times they follow one another in a loop. "Very, very, very" is none."""
SHARE_TOKENISED, SHARE_LOOPING = 0.1, 0.02
"""Of the lines, from which on a symptom is told. References show how much of it is normal."""


def symptoms(hyps: Sequence[str], refs: Sequence[str]) -> list[str]:
    """A sentence for each thing that looks wrong with `hyps`, where `refs` do not look the same."""
    tokenised = _share(is_tokenised, hyps) - _share(is_tokenised, refs)
    looping = _share(is_looping, hyps) - _share(is_looping, refs)
    found = []
    if tokenised >= SHARE_TOKENISED:
        found.append(
            f"{_count(is_tokenised, hyps)} end in a space and a mark, such as "
            f"{_example(is_tokenised, hyps)}: "
            "the output looks tokenised, and so its scores mislead; score detokenised text"
        )
    if looping >= SHARE_LOOPING:
        found.append(
            f"{_count(is_looping, hyps)} say the same over and over, such as {_example(is_looping, hyps)}: "
            "train longer, or evaluate and translate with --no-repeat-ngram 4"
        )
    return found


def is_tokenised(line: str) -> bool:
    """Whether a space stands before the last punctuation mark."""
    return TOKENISED_LINE.search(line) is not None


def is_looping(line: str) -> bool:
    """Whether one to four words are said again and again."""
    words = WORD.findall(line.casefold())
    return any(_longest_echo(words, n) >= n * (times - 1) for n, times in LOOPS.items())


def _longest_echo(words: Sequence[str], n: int) -> int:
    """Most words in a row that equal the ones `n` places before."""
    longest = run = 0
    for earlier, later in zip(words, words[n:], strict=False):
        run = run + 1 if earlier == later else 0
        longest = max(longest, run)
    return longest


def _share(has_symptom: Callable[[str], bool], lines: Sequence[str]) -> float:
    return sum(map(has_symptom, lines)) / max(1, len(lines))


def _count(has_symptom: Callable[[str], bool], lines: Sequence[str]) -> str:
    return f"{sum(map(has_symptom, lines))} of {len(lines)} lines"


def _example(has_symptom: Callable[[str], bool], lines: Sequence[str]) -> str:
    line = next(i for i, line in enumerate(lines, start=1) if has_symptom(line))
    return f"line {line}"
