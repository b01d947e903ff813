"""Sanity checks on a sample of each split, taken while it is scanned, before anything is written.

An error for what cannot work, a warning for what will probably not: sides that are swapped, lines
that are shuffled, one language twice.
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
from mt_cli.text.language import base_language, is_known, other_language
from mt_cli.text.normalize import is_tokenized, is_valid_utf8

log = logging.getLogger(__name__)
MIN_PAIRS = 50
"""Fewer say nothing of the whole."""
MAX_INVALID = 0.05
"""Share of lines that are not UTF-8 above which a file must be in another encoding."""
MAX_EQUAL = 0.2
"""Largest normal share of pairs with the same text on both sides."""
MAX_MARKUP = 0.01
"""The same of pairs with markup."""
MAX_TOKENIZED = 0.2
"""The same of pairs that look tokenized."""
MARKUP = re.compile(
    r"&(?:[A-Za-z]{2,8}|#\d{2,5}|#x[0-9A-Fa-f]{2,5});|@[-,./]@|@@ |</?[A-Za-z]{1,6}\b[^<>]{0,200}>"
    r"|\[/?[bi]\]|\{\\i\d\}"
)
"""Entities as `&auml;`, marks of Moses' tokenizer and of BPE, tags of HTML, forums, subtitles."""
MIN_LINES = 3
"""Fewer odd lines say nothing of a file."""
MAX_KNOWN_SHARE = 0.02
"""Share of held-out sources that may be in training too."""
MAX_KNOWN = 3
"""Number of held-out sources that may be in training too."""
MAX_SWAPPED = 0.02
"""Share of pairs with swapped sides from which on a warning is given."""
LANGUAGE_PAIRS = 300
"""Pairs whose languages are looked at one by one."""
MIN_TEXT = 20
"""Characters of a line without which its language cannot be told."""
MIN_CORRELATION = 0.25
"""Of both sides' lengths. Real translations have 0.6 and more, shuffled ones about 0."""
MIN_SPREAD = 0.2
"""Standard deviation of a side's lengths over their mean, below which they tell nothing."""
NUM_WINDOWS = 8
"""Parts of a file whose lengths are compared apart, which finds lines that shift from one on."""
LANGUAGE_TEXT = 20_000
"""Characters that tell a side's language."""
NUMBER = re.compile(r"\d{1,18}")
MIN_EQUAL_NUMBERS = 0.2
"""Of the pairs with numbers on both sides, the share with the same ones if they translate."""
NUM_EXAMPLES = 5
"""Pairs that are shown."""
LINE = 64
"""Letters of a side that has a line of its own."""
Sample = list[tuple[int, Pair]]
"""The number of each line, from 1, and its normalized pair, with text on both sides; in order."""


def check_corpus(
    corpus: Corpus,
    data: DataConfig,
    *,
    learns: bool = False,
    is_share: bool = False,
    workers: int = 1,
) -> dict[str, SplitStatistics]:
    """Scan all splits of `corpus`, warn of their problems, and show some training pairs.

    The training split keeps pairs for tokenizers if one `learns` from it. In a shard, which
    `is_share` of the training text, a few odd files may be all that there is.

    Raises:
        DataError: a split cannot be used.
    """
    if data.filter.languages:
        for lang in (data.src_lang, data.tgt_lang):
            if not is_known(lang):
                log.warning(
                    "data.filter.languages: py3langid does not know %s, and keeps all", lang
                )
    scanned = {}
    for name, files in corpus.items():
        keeps_pairs = learns and name == TRAIN
        scanned[name] = scan_split(
            files, name, data, keeps_pairs=keeps_pairs, is_share=is_share, workers=workers
        )
        sample = _usable_sample(
            scanned[name], files, data, is_trained_on=is_trained_on(name), is_share=is_share
        )
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


def _examples(sample: Sample, files: ParallelText) -> str:
    """Some training pairs, to be shown."""
    lines = ["some training pairs:"]
    distance = max(1, len(sample) // NUM_EXAMPLES)
    for line, (src, tgt) in sample[distance // 2 :: distance][:NUM_EXAMPLES]:
        lines.append(f"  line {files.place_of(line)}: {shortened(src, LINE)}")
        lines.append(f"    {shortened(tgt, LINE)}")
    return "\n".join(lines)


def shortened(text: str, width: int) -> str:
    """`text`, or as much of it as `width` letters have room for."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def warn_of_known_sources(name: str, num_known: int, *, of: int) -> None:
    """Warn if more than a few sources of a held-out split are in training too."""
    if num_known > max(MAX_KNOWN, MAX_KNOWN_SHARE * of):
        log.warning(
            "%s: %d of its %d sources are in the training pairs too, so that its scores will be "
            "too high; leave them out of training, or let mt-cli config new cut %s off",
            name,
            num_known,
            of,
            name,
        )


def _usable_sample(
    statistics: SplitStatistics,
    files: ParallelText,
    data: DataConfig,
    *,
    is_trained_on: bool,
    is_share: bool,
) -> Sample:
    """The sampled pairs of a split, as the filter leaves them for training.

    Raises:
        DataError: a side is not UTF-8, or no text, or both sides are the same text.
    """
    _check_encoding(files.src, [(line, src) for line, (src, _) in statistics.sample])
    _check_encoding(files.tgt, [(line, tgt) for line, (_, tgt) in statistics.sample])
    options = text_options(data)
    begin, _ = files.lines or (0, None)
    sample: Sample = []
    for line, (raw_src, raw_tgt) in statistics.sample:
        src = normalized(raw_src, options)
        tgt = normalized(raw_tgt, options)
        if src and tgt:
            sample.append((begin + line + 1, (src, tgt)))
    if not is_share:
        if len(sample) > 1 and all(src == tgt for _, (src, tgt) in sample):
            raise DataError(
                f"{files}: both sides are the same text; name the translations of the one"
            )
        _check_letters(files.src, [src for _, (src, _) in sample])
        _check_letters(files.tgt, [tgt for _, (_, tgt) in sample])
    if is_trained_on:
        sample = [each for each in sample if drop_reason(*each[1], data.filter, options) == KEPT]
    return sample


def _check_encoding(side: SideFiles, lines: Sequence[tuple[int, bytes]]) -> None:
    """Refuse a side in another encoding than UTF-8, judged by some of its `lines`."""
    invalid = [number for number, line in lines if not is_valid_utf8(line)]
    if len(invalid) > len(lines) * MAX_INVALID:
        raise DataError(
            f"{side}: {len(invalid)} of {len(lines)} lines are not UTF-8, the first is line "
            f"{invalid[0] + 1}; convert the file with iconv"
        )


def _check_letters(side: SideFiles, texts: Sequence[str]) -> None:
    """Refuse a side that is not text, but numbers, as an index is."""
    without = [text for text in texts if not any(map(str.isalpha, text))]
    if len(texts) > 1 and len(without) > len(texts) / 2:
        raise DataError(
            f"{side}: no letter in {without[0][:LINE]!r} and others; name columns with --columns"
        )


# Problems, a sentence each


def find_problems(
    sample: Sample, files: ParallelText, src_lang: str, tgt_lang: str
) -> Iterator[str]:
    """What is probably wrong with a split."""
    if len(sample) < MIN_PAIRS:
        return

    def where_common(
        max_share: float, has_problem: Callable[[str, str], object], problem: str
    ) -> Iterator[str]:
        """The `problem`, if more than `max_share` of the pairs have it, and some lines."""
        lines = [line for line, pair in sample if has_problem(*pair)]
        if len(lines) >= max(MIN_LINES, max_share * len(sample)):
            shown = ", ".join(map(files.place_of, lines[:3]))
            share = f"{len(lines) / len(sample):.0%} of the pairs"
            yield f"{files}: {share} {problem} (lines {shown} …)"

    yield from where_common(
        MAX_EQUAL,
        lambda src, tgt: src == tgt,
        "have the same text on both sides; [data.filter] copies = true leaves them out of training",
    )
    yield from where_common(
        MAX_MARKUP,
        lambda src, tgt: MARKUP.search(src) or MARKUP.search(tgt),
        "have markup such as &uuml;, &apos; or <b>, which a model learns as if it were text; take "
        "it out before",
    )
    yield from where_common(
        MAX_TOKENIZED,
        lambda src, tgt: is_tokenized(src) or is_tokenized(tgt),
        "look tokenized, with a space before the last mark; text that people type does not: "
        "detokenize it",
    )
    misaligned = _misaligned(sample, files)
    if misaligned is not None:
        yield f"{files}: {misaligned}; check that the same line is the same sentence"
    yield from _other_languages(sample, files, src_lang, tgt_lang)


def _misaligned(sample: Sample, files: ParallelText) -> str | None:
    """Whether the lines of both sides belong together, judged by lengths and numbers."""
    lengths = np.array([(len(src), len(tgt)) for _, (src, tgt) in sample], np.float64)
    num_with_numbers = 0
    num_equal = 0
    for _, (src, tgt) in sample:
        src_numbers = numbers_in(src)
        tgt_numbers = numbers_in(tgt)
        if src_numbers and tgt_numbers:  # otherwise, one side may have words for them
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
    """The numbers in `text` by value, in whichever script's digits they are written, sorted."""
    return sorted(int(found) for found in NUMBER.findall(text))


def _correlation(lengths: NDArray[np.float64]) -> float:
    """Pearson's, of the two columns (N, 2); 1 where the lengths of a side are about equal."""
    if (lengths.std(0) < MIN_SPREAD * lengths.mean(0)).any():
        return 1.0
    src, tgt = lengths.T
    return float(((src - src.mean()) * (tgt - tgt.mean())).mean() / src.std() / tgt.std())


def _other_languages(
    sample: Sample, files: ParallelText, src_lang: str, tgt_lang: str
) -> Iterator[str]:
    """Sides in each other's languages, all of them or many pairs, or in a third one."""

    def is_swapped(src: str, tgt: str) -> bool:
        is_src_swapped = other_language(src, src_lang) == base_language(tgt_lang)
        return is_src_swapped and other_language(tgt, tgt_lang) == base_language(src_lang)

    all_src = " ".join(src for _, (src, _) in sample)[:LANGUAGE_TEXT]
    all_tgt = " ".join(tgt for _, (_, tgt) in sample)[:LANGUAGE_TEXT]
    if is_swapped(all_src, all_tgt):
        yield (
            f"the sides are swapped: {files.src} looks like {tgt_lang}, and {files.tgt} like "
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
            yield f"{side}: it looks like {other}, and should be {lang}"
