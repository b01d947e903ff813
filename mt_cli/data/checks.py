"""Sanity checks on a sample of the corpus, before anything is written.

An error for what cannot work, a warning for what will probably not: sides that are swapped, lines
that are shuffled, one language twice.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import TRAIN, DataConfig
from mt_cli.data.corpora import Corpus, ParallelText, RawPair, SideFiles, is_trained_on
from mt_cli.data.scan import KEPT, Pair, drop_reason, text_options
from mt_cli.errors import DataError
from mt_cli.text.language import base_language, is_known, other_language
from mt_cli.text.normalize import decode_line, is_tokenized, is_valid_utf8, normalize
from mt_cli.text.tokenizers import sampled

log = logging.getLogger(__name__)
SAMPLE_SIZE = 10_000
"""Of a split that are looked at."""
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


def log_problems(corpus: Corpus, data: DataConfig, *, is_whole: bool = True) -> str:
    """Warn of problems in all splits of `corpus`; returns some training pairs to be shown.

    Unless it `is_whole`, a few odd files may be all there is of its training text.

    Raises:
        DataError: a split cannot be used.
    """
    if data.filter.languages:
        for lang in (data.src_lang, data.tgt_lang):
            if not is_known(lang):
                log.warning(
                    "data.filter.languages: py3langid does not know %s, and keeps all", lang
                )
    lines = ["some training pairs:"]
    for name, files in corpus.items():
        sample = sample_split(files, data, is_trained_on=is_trained_on(name), is_whole=is_whole)
        for problem in find_problems(sample, files, data.src_lang, data.tgt_lang):
            log.warning("%s: %s", name, problem)
        if name == TRAIN:
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


def sample_split(
    files: ParallelText, data: DataConfig, *, is_trained_on: bool, is_whole: bool = True
) -> Sample:
    """Read a split once, and keep a sample of its pairs, as the filter leaves them for training.

    Raises:
        DataError: a side is not UTF-8, or no text, or both sides are the same text.
    """
    num_lines = 0
    invalid: dict[SideFiles, list[int]] = {files.src: [], files.tgt: []}
    first, _ = files.lines or (0, None)

    def numbered() -> Iterator[tuple[int, RawPair]]:
        nonlocal num_lines
        for number, (src, tgt) in enumerate(files.pairs(), first + 1):
            num_lines += 1
            if not is_valid_utf8(src):
                invalid[files.src].append(number)
            if not is_valid_utf8(tgt):
                invalid[files.tgt].append(number)
            yield number, (src, tgt)

    sample: Sample = []
    for line, (raw_src, raw_tgt) in sorted(sampled(numbered(), SAMPLE_SIZE, seed=0)):
        src = normalize(decode_line(raw_src), lowercase=data.lowercase)
        tgt = normalize(decode_line(raw_tgt), lowercase=data.lowercase)
        if src and tgt:
            sample.append((line, (src, tgt)))
    for side, lines in invalid.items():
        if len(lines) > num_lines * MAX_INVALID:
            raise DataError(
                f"{side}: not UTF-8: {len(lines)} lines, the first is line {lines[0]}; use iconv"
            )
    if is_whole:
        if len(sample) > 1 and all(src == tgt for _, (src, tgt) in sample):
            raise DataError(
                f"{files}: both sides are the same text; name the translations of the one"
            )
        _check_letters(files.src, [src for _, (src, _) in sample])
        _check_letters(files.tgt, [tgt for _, (_, tgt) in sample])
    options = text_options(data)
    if is_trained_on:
        sample = [each for each in sample if drop_reason(*each[1], data.filter, options) == KEPT]
    return sample


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
