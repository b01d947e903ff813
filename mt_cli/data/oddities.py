"""What is odd about parallel text, found in a sample of it before anything is made.

An error for what cannot work, a warning for what will probably not: sides that are swapped, lines that are
shuffled, one language twice.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import TRAIN, DataConfig
from mt_cli.data.corpora import Corpus, ParallelText, RawPair, is_trained_on, read_pairs
from mt_cli.data.filter import KEPT, drop_reason, text_options
from mt_cli.errors import DataError
from mt_cli.text.language import is_known, other_language
from mt_cli.text.normalize import decode_line, is_valid_utf8, normalize
from mt_cli.text.tokenizer import sampled

log = logging.getLogger(__name__)
MOST_PAIRS = 10_000
"""Of a split that are looked at."""
FEWEST_PAIRS = 50
"""Fewer say nothing of the whole."""
MOST_INVALID = 0.05
"""Share of lines that are not UTF-8 above which a file must be in another encoding."""
MOST_EQUAL, MOST_TABS, MOST_REPEATED, MOST_UNLIKE = 0.2, 0.2, 0.1, 0.1
"""Largest normal shares of pairs that are equal, have tabs, repeat others, or differ much in length."""
UNLIKE = 3.0
"""Factor by which a side's length may differ from what the other side predicts."""
LEAST_CORRELATION = 0.25
"""Of both sides' lengths. Real translations have 0.6 and more, shuffled ones about 0."""
WINDOWS = 8
"""Parts of a file whose lengths are compared apart, so that lines shifted from some place on are found."""
ENOUGH_TEXT = 20_000
"""Characters that tell a side's language."""
NUM_EXAMPLES, LONGEST = 5, 70
"""Pairs that are shown, and letters of a side."""


@dataclass(frozen=True)
class Pair:
    """A normalised pair, and where it stands."""

    line: int
    """From 1."""
    src: str
    tgt: str
    has_tab: bool


@dataclass(frozen=True)
class Look:
    """What was seen of a split."""

    files: ParallelText
    pairs: list[Pair]
    """A sample of those with text on both sides, in order."""
    is_trained_on: bool

    def examples(self) -> list[str]:
        """A few pairs, spread over the file, for people to look at."""
        apart = max(1, len(self.pairs) // NUM_EXAMPLES)
        shown = self.pairs[apart // 2 :: apart][:NUM_EXAMPLES]
        return [f"line {pair.line}: {shown_pair(pair.src, pair.tgt)}" for pair in shown]


def shown_pair(src: str, tgt: str) -> str:
    """A pair in one line."""
    return f"{src[:LONGEST]}  |  {tgt[:LONGEST]}"


def look_at(files: ParallelText, data: DataConfig, *, is_trained_on: bool) -> Look:
    """Read a split once, and keep a sample of its pairs, or of those that the filter leaves for training.

    Raises:
        DataError: a side is not UTF-8, or both sides are the same text.
    """
    num_lines, invalid = 0, {files.src: list[int](), files.tgt: list[int]()}

    def numbered() -> Iterator[tuple[int, RawPair]]:
        nonlocal num_lines
        for num_lines, pair in enumerate(read_pairs(files), 1):
            for lines, side in zip(invalid.values(), pair, strict=False):
                if not is_valid_utf8(side):
                    lines.append(num_lines)
            yield num_lines, pair

    found = []
    for line, raw in sorted(sampled(numbered(), MOST_PAIRS, seed=0)):
        src, tgt = (normalize(decode_line(side), lowercase=data.lowercase) for side in raw)
        if src and tgt:
            found.append(Pair(line, src, tgt, has_tab=any(b"\t" in side.strip() for side in raw)))
    for text, lines in invalid.items():
        if len(lines) > num_lines * MOST_INVALID:
            raise DataError(
                f"{text}: {len(lines)} of {num_lines} lines are not valid UTF-8, "
                f"of which number {lines[0]} is the first; "
                f"convert it: iconv -f latin1 -t utf-8 {' '.join(map(str, text.paths))}"
            )
    if len(found) > 1 and all(pair.src == pair.tgt for pair in found):
        raise DataError(f"{files}: both sides are the same text; name the translations of the one")
    if is_trained_on:
        options = text_options(data)
        if data.filter.duplicates:
            found = list({(pair.src, pair.tgt): pair for pair in reversed(found)}.values())[::-1]
        found = [p for p in found if drop_reason(p.src, p.tgt, data.filter, options) == KEPT]
    return Look(files, found, is_trained_on)


def oddities(look: Look, *, src_lang: str, tgt_lang: str) -> Iterator[str]:
    """What is odd about a split, a sentence each."""
    pairs = look.pairs
    if len(pairs) < FEWEST_PAIRS:
        return
    both = str(look.files)

    def leaves_out(setting: str) -> str:
        return f"; [data.filter] {setting} leaves them out" if look.is_trained_on else ""

    sentence = f"{both}: {{}} pairs have the same text on both sides{leaves_out('copies = true')}"
    yield from _shared(pairs, MOST_EQUAL, lambda pair: pair.src == pair.tgt, sentence)
    sentence = f"{both}: {{}} pairs have a tab; files of columns are named .tsv, or have a src_column"
    yield from _shared(pairs, MOST_TABS, lambda pair: pair.has_tab, sentence)
    first = {(pair.src, pair.tgt): pair for pair in reversed(pairs)}
    yield from _shared(
        pairs,
        MOST_REPEATED,
        lambda pair: first[pair.src, pair.tgt] is not pair,
        f"{both}: {{}} pairs repeat others{leaves_out('duplicates = true')}",
    )
    if misaligned := _misaligned(pairs):
        yield f"{both}: {misaligned}; check that the same line is the same sentence"
    else:
        yield from _of_lengths(pairs, both, advice=leaves_out("max_ratio"))
    yield from _of_languages(look, src_lang, tgt_lang)


def log_oddities(corpus: Corpus, data: DataConfig) -> str:
    """Look at all splits of `corpus`, and warn of what is odd; gives some training pairs to be shown.

    Raises:
        DataError: a split cannot be used.
    """
    unknown = [
        lang for lang in (data.src_lang, data.tgt_lang) if data.filter.languages and not is_known(lang)
    ]
    if unknown:
        log.warning("data.filter.languages: py3langid does not know %s, and keeps all", ", ".join(unknown))
    examples = list[str]()
    for name, files in corpus.items():
        look = look_at(files, data, is_trained_on=is_trained_on(name))
        for oddity in oddities(look, src_lang=data.src_lang, tgt_lang=data.tgt_lang):
            log.warning("%s: %s", name, oddity)
        if name == TRAIN:
            examples = look.examples()
    return "\n".join(["some training pairs:", *(f"  {example}" for example in examples)])


def _shared(
    pairs: Sequence[Pair], most: float, is_odd: Callable[[Pair], object], sentence: str
) -> Iterator[str]:
    """`sentence` with the share of `pairs` that are odd, if that is `most` or more."""
    lines = [pair.line for pair in pairs if is_odd(pair)]
    if len(lines) >= most * len(pairs):
        share, shown = f"{len(lines) / len(pairs):.0%} of the", ", ".join(map(str, lines[:3]))
        yield f"{sentence.format(share)} (lines {shown} …)"


def _misaligned(pairs: Sequence[Pair]) -> str | None:
    """What lengths and numbers say of whether the lines of both sides belong together."""
    lengths = np.array([(len(pair.src), len(pair.tgt)) for pair in pairs], np.float64)
    numbers = [(re.findall(r"\d+", pair.src), re.findall(r"\d+", pair.tgt)) for pair in pairs]
    numbers = [pair for pair in numbers if pair[0]]
    have_own_numbers = len(numbers) >= FEWEST_PAIRS and sum(src == tgt for src, tgt in numbers) < 0.2 * len(
        numbers
    )
    if _correlation(lengths) < LEAST_CORRELATION or have_own_numbers:
        return "the sources have nothing to do with their targets, as far as lengths and numbers tell"
    found = [_correlation(each) for each in np.array_split(lengths, WINDOWS)]
    for number in range(1, WINDOWS if len(pairs) >= 4 * WINDOWS * FEWEST_PAIRS else 0):
        if np.mean(found[number:]) < LEAST_CORRELATION < np.mean(found[:number]) / 2:
            line = pairs[number * len(pairs) // WINDOWS].line
            return f"from about line {line} on, the sources have nothing to do with their targets"
    return None


def _correlation(lengths: NDArray[np.float64]) -> float:
    """Pearson's, of the two columns (N, 2); 1 where a side is always as long."""
    if not lengths.std(0).all():
        return 1.0
    src, tgt = lengths.T
    return float(((src - src.mean()) * (tgt - tgt.mean())).mean() / src.std() / tgt.std())


def _of_lengths(pairs: Sequence[Pair], both: str, *, advice: str) -> Iterator[str]:
    ratios = np.log([(len(pair.src) + 10) / (len(pair.tgt) + 10) for pair in pairs])
    unlike = np.abs(ratios - np.median(ratios)) > np.log(UNLIKE)
    lines = {pair.line for pair, is_odd in zip(pairs, unlike.tolist(), strict=True) if is_odd}
    yield from _shared(
        pairs, MOST_UNLIKE, lambda pair: pair.line in lines,
        f"{both}: in {{}} pairs, one side is {UNLIKE:g} times as long as the other lets expect{advice}",
    )  # fmt: skip


def _of_languages(look: Look, src_lang: str, tgt_lang: str) -> Iterator[str]:
    src, tgt = (
        " ".join(side)[:ENOUGH_TEXT] for side in zip(*((p.src, p.tgt) for p in look.pairs), strict=True)
    )
    src_other, tgt_other = other_language(src, src_lang), other_language(tgt, tgt_lang)
    files = look.files
    if (src_other, tgt_other) == (tgt_lang, src_lang):
        yield f"the sides are swapped: {files.src} looks like {tgt_lang}, and {files.tgt} like {src_lang}"
        return
    for text, other, lang, side in (
        (files.src, src_other, src_lang, "source"),
        (files.tgt, tgt_other, tgt_lang, "target"),
    ):
        if other is not None:
            yield f"{text}: the {side} looks like {other}, and should be {lang}"
