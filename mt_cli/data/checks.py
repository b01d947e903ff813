"""Sanity checks on a sample of each split, before anything is written.

What cannot work is an error. What will probably not work is a warning: swapped sides, misaligned
lines, wrong languages.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import TRAIN, DataConfig
from mt_cli.data.corpora import Corpus, ParallelText, SideFiles, is_trained_on
from mt_cli.data.scan import (
    KEPT,
    Pair,
    SplitStatistics,
    count_common,
    drop_reason,
    normalized,
    scan_split,
    text_options,
)
from mt_cli.errors import DataError
from mt_cli.text.language import base_language, is_detectable, other_language
from mt_cli.text.normalize import is_tokenized, is_valid_utf8

log = logging.getLogger(__name__)
MIN_PAIRS = 50
"""Minimum pairs for the checks to be meaningful."""
MAX_INVALID = 0.05
"""Share of invalid UTF-8 lines above which a file is considered to have another encoding."""
MAX_EQUAL = 0.2
"""Share of pairs with the same text on both sides that is still normal."""
MAX_MARKUP = 0.01
"""Share of pairs with markup that is still normal."""
MAX_TOKENIZED = 0.2
"""Share of pairs that look tokenized that is still normal."""
MARKUP = re.compile(
    r"&(?:[A-Za-z]{2,8}|#\d{2,5}|#x[0-9A-Fa-f]{2,5});|@[-,./]@|@@ |</?[A-Za-z]{1,6}\b[^<>]{0,200}>"
    r"|\[/?[bi]\]|\{\\i\d\}"
)
"""Entities such as `&auml;`, marks of Moses' tokenizer and BPE, tags of HTML, forums, subtitles."""
MIN_LINES = 3
"""Minimum odd lines for a warning."""
MAX_KNOWN_SHARE = 0.02
"""Share of held-out sources that may also be in training without a warning."""
MAX_KNOWN = 3
"""Number of held-out sources that may also be in training without a warning."""
MAX_SWAPPED = 0.02
"""Share of pairs with swapped sides from which there is a warning."""
LANGUAGE_PAIRS = 300
"""Number of pairs whose languages are checked one by one."""
MIN_TEXT = 20
"""Minimum characters of a line for language detection."""
MIN_CORRELATION = 0.25
"""Minimum correlation of both sides' lengths: translations have 0.6 or more, shuffled ones about 0.
"""
MIN_SPREAD = 0.2
"""Minimum relative standard deviation of a side's lengths for the correlation to be meaningful."""
NUM_WINDOWS = 8
"""Number of parts of a file that are checked separately, to find where a shift of lines begins."""
LANGUAGE_TEXT = 20_000
"""Characters for detecting a side's language."""
NUMBER = re.compile(r"\d{1,18}")
MIN_EQUAL_NUMBERS = 0.2
"""Minimum share with equal numbers among the pairs with numbers on both sides."""
NUM_EXAMPLES = 5
"""Number of example pairs to show."""
LINE = 64
"""Maximum characters of a shown line."""
NumberedPairs = list[tuple[int, Pair]]
"""(line number from 1, normalized pair), in order; only pairs with text on both sides."""


def check_corpus(
    corpus: Corpus,
    data: DataConfig,
    *,
    learns: bool = False,
    is_share: bool = False,
    workers: int = 1,
) -> dict[str, SplitStatistics]:
    """Scan all splits of `corpus`, warn about problems, and log some training pairs.

    With `learns`, pairs of the training split are kept for learning tokenizers. With `is_share`,
    this is a shard of the training text, which may happen to have only odd files.

    Raises:
        DataError: a split cannot be used.
    """
    if data.filter.languages:
        for lang in (data.src_lang, data.tgt_lang):
            if not is_detectable(lang):
                log.warning(
                    "data.filter.languages: py3langid does not know %s, so nothing is skipped", lang
                )
    scanned = {}
    for name, files in corpus.items():
        keeps_pairs = learns and name == TRAIN
        scanned[name] = scan_split(
            files, name, data, keeps_pairs=keeps_pairs, is_share=is_share, workers=workers
        )
        sample = _usable_sample(scanned[name], files, name, data, is_share=is_share)
        for problem in find_problems(sample, files, data.src_lang, data.tgt_lang):
            log.warning("%s: %s", name, problem)
        if name == TRAIN:
            log.info("%s", _examples(sample, files))
    sources = [of.src_hashes for name, of in scanned.items() if is_trained_on(name)]
    for name, held_out in scanned.items():
        if not is_trained_on(name):
            num_known = count_common(held_out.src_hashes, sources)
            warn_of_known_sources(name, num_known, of=held_out.lines)
    return scanned


def _examples(sample: NumberedPairs, files: ParallelText) -> str:
    """Some training pairs as text."""
    lines = ["some training pairs:"]
    distance = max(1, len(sample) // NUM_EXAMPLES)
    for line, (src, tgt) in sample[distance // 2 :: distance][:NUM_EXAMPLES]:
        lines.append(f"  line {files.place_of(line)}: {shortened(src, LINE)}")
        lines.append(f"    {shortened(tgt, LINE)}")
    return "\n".join(lines)


def shortened(text: str, width: int) -> str:
    """`text`, cut to `width` characters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def warn_of_known_sources(name: str, num_known: int, *, of: int) -> None:
    """Warn if more than a few sources of a held-out split are also in training."""
    if num_known > max(MAX_KNOWN, MAX_KNOWN_SHARE * of):
        log.warning(
            "%s: %d of its %d sources are also in the training pairs, so its scores will be too "
            "high; remove them from training, or let mt-cli config new split %s off",
            name,
            num_known,
            of,
            name,
        )


def _usable_sample(
    statistics: SplitStatistics,
    files: ParallelText,
    name: str,
    data: DataConfig,
    *,
    is_share: bool,
) -> NumberedPairs:
    """The sampled pairs of a split after filtering.

    Raises:
        DataError: a side is not UTF-8 or not text, or both sides have the same text.
    """
    _check_encoding(files.src, [(line, src) for line, (src, _) in statistics.sample])
    _check_encoding(files.tgt, [(line, tgt) for line, (_, tgt) in statistics.sample])
    options = text_options(data)
    begin, _ = files.lines or (0, None)
    sample: NumberedPairs = []
    for line, (raw_src, raw_tgt) in statistics.sample:
        src = normalized(raw_src, options)
        tgt = normalized(raw_tgt, options)
        if src and tgt:
            sample.append((begin + line + 1, (src, tgt)))
    if not is_share:
        if len(sample) > 1 and all(src == tgt for _, (src, tgt) in sample):
            raise DataError(
                f"{files}: both sides have the same text; use the translations for one side"
            )
        _check_letters(files.src, [src for _, (src, _) in sample])
        _check_letters(files.tgt, [tgt for _, (_, tgt) in sample])
    if is_trained_on(name):
        sample = [each for each in sample if drop_reason(*each[1], data.filter, options) == KEPT]
    return sample


def _check_encoding(side: SideFiles, lines: Sequence[tuple[int, bytes]]) -> None:
    """Reject a side that is not UTF-8, judged by a sample of its `lines`."""
    invalid = [number for number, line in lines if not is_valid_utf8(line)]
    if len(invalid) > len(lines) * MAX_INVALID:
        raise DataError(
            f"{side}: {len(invalid)} of {len(lines)} lines are not UTF-8, first line "
            f"{invalid[0] + 1}; convert the file with iconv"
        )


def _check_letters(side: SideFiles, texts: Sequence[str]) -> None:
    """Reject a side of numbers, such as an index column, instead of text."""
    without = [text for text in texts if not any(map(str.isalpha, text))]
    if len(texts) > 1 and len(without) > len(texts) / 2:
        raise DataError(
            f"{side}: {without[0][:LINE]!r} and others have no letters; choose columns with "
            "--columns"
        )


# Warnings


def find_problems(
    sample: NumberedPairs, files: ParallelText, src_lang: str, tgt_lang: str
) -> Iterator[str]:
    """Warnings about probable problems of a split."""
    if len(sample) < MIN_PAIRS:
        return

    def where_common(
        max_share: float, has_problem: Callable[[str, str], object], problem: str
    ) -> Iterator[str]:
        """A warning with some lines if at least `max_share` of the pairs have the `problem`."""
        lines = [line for line, pair in sample if has_problem(*pair)]
        if len(lines) >= max(MIN_LINES, max_share * len(sample)):
            shown = ", ".join(map(files.place_of, lines[:3]))
            share = f"{len(lines) / len(sample):.0%} of the pairs"
            yield f"{files}: {share} {problem} (lines {shown} …)"

    yield from where_common(
        MAX_EQUAL,
        lambda src, tgt: src == tgt,
        "have the same text on both sides; [data.filter] copies = true skips them in training",
    )
    yield from where_common(
        MAX_MARKUP,
        lambda src, tgt: MARKUP.search(src) or MARKUP.search(tgt),
        "have markup such as &uuml;, &apos; or <b>, which a model learns as text; remove it first",
    )
    yield from where_common(
        MAX_TOKENIZED,
        lambda src, tgt: is_tokenized(src) or is_tokenized(tgt),
        "look tokenized, with a space before the last mark, unlike the text that people type; "
        "detokenize them",
    )
    misaligned = _misaligned(sample, files)
    if misaligned is not None:
        yield f"{files}: {misaligned}; check that both files align line by line"
    yield from _other_languages(sample, files, src_lang, tgt_lang)


def _misaligned(sample: NumberedPairs, files: ParallelText) -> str | None:
    """A description if the lines do not match, judged by lengths and numbers."""
    lengths = np.array([(len(src), len(tgt)) for _, (src, tgt) in sample], np.float64)
    num_with_numbers = 0
    num_equal = 0
    for _, (src, tgt) in sample:
        src_numbers = numbers_in(src)
        tgt_numbers = numbers_in(tgt)
        if src_numbers and tgt_numbers:  # otherwise, one side may have written them out
            num_with_numbers += 1
            num_equal += src_numbers == tgt_numbers
    has_other_numbers = (
        num_with_numbers >= MIN_PAIRS and num_equal < MIN_EQUAL_NUMBERS * num_with_numbers
    )
    if has_other_numbers or _correlation(lengths) < MIN_CORRELATION:
        return "source and target lines do not match (judged by lengths and numbers)"
    if len(sample) < 4 * NUM_WINDOWS * MIN_PAIRS:
        return None
    correlations = [_correlation(window) for window in np.array_split(lengths, NUM_WINDOWS)]
    for number in range(1, NUM_WINDOWS):
        before = np.mean(correlations[:number])
        after = np.mean(correlations[number:])
        if after < MIN_CORRELATION < before / 2:
            line, _ = sample[number * len(sample) // NUM_WINDOWS]
            return (
                f"from about line {files.place_of(line)} on, source and target lines do not match"
            )
    return None


def numbers_in(text: str) -> list[int]:
    """The values of the numbers in `text`, in any script's digits, sorted."""
    return sorted(int(found) for found in NUMBER.findall(text))


def _correlation(lengths: NDArray[np.float64]) -> float:
    """Pearson correlation of the columns of `lengths` (N, 2); 1 if a side's lengths hardly vary."""
    if (lengths.std(0) < MIN_SPREAD * lengths.mean(0)).any():
        return 1.0
    src, tgt = lengths.T
    return float(((src - src.mean()) * (tgt - tgt.mean())).mean() / src.std() / tgt.std())


def _other_languages(
    sample: NumberedPairs, files: ParallelText, src_lang: str, tgt_lang: str
) -> Iterator[str]:
    """Warnings about swapped sides, in all or many pairs, or about other languages."""

    def is_swapped(src: str, tgt: str) -> bool:
        is_src_swapped = other_language(src, src_lang) == base_language(tgt_lang)
        return is_src_swapped and other_language(tgt, tgt_lang) == base_language(src_lang)

    all_src = " ".join(src for _, (src, _) in sample)[:LANGUAGE_TEXT]
    all_tgt = " ".join(tgt for _, (_, tgt) in sample)[:LANGUAGE_TEXT]
    if is_swapped(all_src, all_tgt):
        yield (
            f"the sides are swapped: {files.src} looks like {tgt_lang}, and {files.tgt} looks like "
            f"{src_lang}"
        )
        return
    long = [each for each in sample if min(map(len, each[1])) >= MIN_TEXT]
    asked = long[:: max(1, len(long) // LANGUAGE_PAIRS)]
    swapped = [line for line, pair in asked if is_swapped(*pair)]
    if len(swapped) >= max(MIN_LINES, MAX_SWAPPED * len(asked)):
        yield (
            f"{files}: in {len(swapped) / len(asked):.0%} of the pairs the sides are swapped, for "
            f"example in line {files.place_of(swapped[0])}"
        )
        return
    for side, text, lang in ((files.src, all_src, src_lang), (files.tgt, all_tgt, tgt_lang)):
        other = other_language(text, lang)
        if other is not None:
            yield f"{side}: looks like {other}, but should be {lang}"
