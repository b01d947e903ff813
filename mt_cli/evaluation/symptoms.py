"""Symptoms of a broken system that a score alone does not show: tokenized output, and loops."""

import re
from collections.abc import Callable, Sequence

from mt_cli.text.normalize import is_normal, is_tokenized

NORMAL_TOKENIZED = 0.1
"""Normal share of lines that look tokenized."""
NORMAL_LOOPS = 0.02
"""Normal share of translations that repeat themselves."""
NORMAL_UNREACHABLE = 0.01
"""Normal share of references that no translation can equal."""
LOOP = re.compile(r"\b(\w+)(?: \1\b){3}|\b(\w+(?: \w+){1,3})(?: \2\b){2}")
"""A word four times in a row, or two to four words three times. "Very, very, very" is none."""


def symptoms(hyps: Sequence[str], refs: Sequence[str]) -> list[str]:
    """A sentence for each thing that looks wrong with `hyps` or `refs`."""
    found = []
    tokenized = _lines_that(is_tokenized, hyps)
    tokenized_refs = _lines_that(is_tokenized, refs)
    if tokenized_refs and len(tokenized_refs) >= NORMAL_TOKENIZED * len(refs):
        found.append(
            f"{len(tokenized_refs)} of {len(refs)} references end in a space and a mark, such as "
            f"line {tokenized_refs[0]}: they look tokenized, and so the scores mislead; score "
            "against detokenized text"
        )
    elif tokenized and len(tokenized) - len(tokenized_refs) >= NORMAL_TOKENIZED * len(hyps):
        found.append(
            f"{len(tokenized)} of {len(hyps)} lines end in a space and a mark, such as line "
            f"{tokenized[0]}: the output looks tokenized, and so its scores mislead; score "
            "detokenized text"
        )
    loops = _lines_that(is_looping, hyps)
    if loops and len(loops) - len(_lines_that(is_looping, refs)) >= NORMAL_LOOPS * len(hyps):
        found.append(
            f"{len(loops)} of {len(hyps)} translations repeat themselves, for example line "
            f"{loops[0]}: train longer, or evaluate and translate with --no-repeat-ngram 4"
        )
    unreachable = _lines_that(lambda line: not is_normal(line), refs)
    if len(unreachable) > NORMAL_UNREACHABLE * len(refs):
        found.append(
            f"{len(unreachable)} of {len(refs)} references, for example line {unreachable[0]}, are "
            "not in Unicode's NFC or hold invisible characters, which no translation has: the "
            "scores are too low"
        )
    return found


def _lines_that(has_symptom: Callable[[str], bool], lines: Sequence[str]) -> list[int]:
    """Numbers, from 1, of the lines that have a symptom."""
    return [number for number, line in enumerate(lines, start=1) if has_symptom(line)]


def is_looping(line: str) -> bool:
    """Whether one to four words are said again and again, whatever marks stand between them."""
    return LOOP.search(" ".join(re.findall(r"\w+", line.casefold()))) is not None
