"""Sanity checks on a sample of the corpus, before anything is written.

An error for what cannot work, a warning for what will probably not: sides that are swapped, lines
that are shuffled, one language twice.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import TRAIN, DataConfig
from mt_cli.data.corpora import Corpus, ParallelText, RawPair, SideFiles, is_trained_on
from mt_cli.data.files import named_kind
from mt_cli.data.readers import header_of
from mt_cli.data.scan import KEPT, drop_reason, text_options
from mt_cli.errors import DataError
from mt_cli.text.language import base_language, is_known, other_language
from mt_cli.text.normalize import decode_line, is_normal, is_tokenized, is_valid_utf8, normalize
from mt_cli.text.tokenizers import sampled

log = logging.getLogger(__name__)
SAMPLE_SIZE = 10_000
"""Of a split that are looked at."""
MIN_PAIRS = 50
"""Fewer say nothing of the whole."""
MAX_INVALID = 0.05
"""Share of lines that are not UTF-8 above which a file must be in another encoding."""
MAX_EQUAL = 0.2
MAX_TABS = 0.2
MAX_REPEATED = 0.1
MAX_UNLIKE = 0.1
"""Largest normal shares of pairs that are equal, have tabs, repeat others, or differ in length."""
MAX_MARKUP = 0.01
"""The same of pairs with markup."""
MAX_TOKENIZED = 0.2
"""The same of pairs that look tokenized."""
MAX_UNREACHABLE = 0.01
"""The same of references that no translation can equal."""
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
MAX_LENGTH_RATIO = 3.0
"""Factor by which a side's length may differ from what the other side predicts."""
MIN_CORRELATION = 0.25
"""Of both sides' lengths. Real translations have 0.6 and more, shuffled ones about 0."""
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


@dataclass(frozen=True)
class Pair:
    """A normalized pair, and where it stands."""

    line: int
    """From 1."""
    src: str
    tgt: str
    has_tab: bool
    is_reachable: bool
    """Whether a translation can equal the target as it stands in the file."""


@dataclass(frozen=True)
class SplitSample:
    """A sample of a split."""

    files: ParallelText
    pairs: list[Pair]
    """Pairs with text on both sides, in order."""
    is_trained_on: bool

    def examples(self) -> list[str]:
        """A few pairs, spread over the file, for people to look at."""
        distance = max(1, len(self.pairs) // NUM_EXAMPLES)
        lines = []
        for pair in self.pairs[distance // 2 :: distance][:NUM_EXAMPLES]:
            lines.append(f"line {pair.line}: {shortened(pair.src, LINE)}")
            lines.append(f"  {shortened(pair.tgt, LINE)}")
        return lines


def shortened(text: str, width: int) -> str:
    """`text`, or as much of it as `width` letters have room for."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def log_problems(corpus: Corpus, data: DataConfig) -> str:
    """Warn of problems in all splits of `corpus`; returns some training pairs to be shown.

    Raises:
        DataError: a split cannot be used.
    """
    if data.filter.languages:
        for lang in (data.src_lang, data.tgt_lang):
            if not is_known(lang):
                log.warning(
                    "data.filter.languages: py3langid does not know %s, and keeps all", lang
                )
    examples: list[str] = []
    for name, files in corpus.items():
        sample = sample_split(files, data, is_trained_on=is_trained_on(name))
        for problem in find_problems(sample, src_lang=data.src_lang, tgt_lang=data.tgt_lang):
            log.warning("%s: %s", name, problem)
        if name == TRAIN:
            examples = sample.examples()
    return "\n".join(["some training pairs:", *(f"  {example}" for example in examples)])


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


def sample_split(files: ParallelText, data: DataConfig, *, is_trained_on: bool) -> SplitSample:
    """Read a split once, and keep a sample of its pairs, as the filter leaves them for training.

    Raises:
        DataError: a side is not UTF-8, or both sides are the same text.
    """
    num_lines = 0
    src_invalid: list[int] = []
    tgt_invalid: list[int] = []

    def numbered() -> Iterator[tuple[int, RawPair]]:
        nonlocal num_lines
        for num_lines, (src, tgt) in enumerate(files.pairs(), 1):
            if not is_valid_utf8(src):
                src_invalid.append(num_lines)
            if not is_valid_utf8(tgt):
                tgt_invalid.append(num_lines)
            yield num_lines, (src, tgt)

    pairs = []
    for line, (raw_src, raw_tgt) in sorted(sampled(numbered(), SAMPLE_SIZE, seed=0)):
        src = normalize(decode_line(raw_src), lowercase=data.lowercase)
        tgt = normalize(decode_line(raw_tgt), lowercase=data.lowercase)
        if src and tgt:
            has_tab = b"\t" in raw_src.strip() or b"\t" in raw_tgt.strip()
            pairs.append(Pair(line, src, tgt, has_tab, is_normal(decode_line(raw_tgt))))
    _check_encoding(files.src, src_invalid, num_lines)
    _check_encoding(files.tgt, tgt_invalid, num_lines)
    if len(pairs) > 1 and all(pair.src == pair.tgt for pair in pairs):
        raise DataError(f"{files}: both sides are the same text; name the translations of the one")
    _check_letters(files.src, [pair.src for pair in pairs])
    _check_letters(files.tgt, [pair.tgt for pair in pairs])
    if is_trained_on:
        pairs = _kept_pairs(pairs, data)
    return SplitSample(files, pairs, is_trained_on)


def _kept_pairs(pairs: Sequence[Pair], data: DataConfig) -> list[Pair]:
    """The pairs that `[data.filter]` keeps."""
    options = text_options(data)
    seen = set()
    kept = []
    for pair in pairs:
        is_repeated = (pair.src, pair.tgt) in seen
        seen.add((pair.src, pair.tgt))
        if is_repeated and data.filter.duplicates:
            continue
        if drop_reason(pair.src, pair.tgt, data.filter, options) == KEPT:
            kept.append(pair)
    return kept


def _check_letters(side: SideFiles, texts: Sequence[str]) -> None:
    """Refuse a side that is not text, but numbers, as an index is."""
    without = [text for text in texts if not any(map(str.isalpha, text))]
    if len(texts) > 1 and len(without) > len(texts) / 2:
        raise DataError(
            f"{side}: {len(without)} of {len(texts)} lines have no letter, such as "
            f"{shortened(without[0], LINE)!r}; name the columns that hold text with --columns "
            "SRC,TGT (src_column and tgt_column in a config)"
        )


def _check_encoding(side: SideFiles, invalid: Sequence[int], num_lines: int) -> None:
    """Refuse a side with many `invalid` lines."""
    if len(invalid) <= num_lines * MAX_INVALID:
        return
    raise DataError(
        f"{side}: not UTF-8: {len(invalid)} of {num_lines} lines are invalid, starting at line "
        f"{invalid[0]}; convert it with iconv"
    )


# Problems, a sentence each


def find_problems(sample: SplitSample, *, src_lang: str, tgt_lang: str) -> Iterator[str]:
    """What is probably wrong with a split."""
    if len(sample.pairs) < MIN_PAIRS:
        return
    yield from _equal_sides(sample)
    yield from _tabs_and_headers(sample)
    yield from _markup(sample)
    yield from _repeated_pairs(sample)
    misaligned = _misaligned(sample.pairs)
    if misaligned is not None:
        yield f"{sample.files}: {misaligned}; check that the same line is the same sentence"
    else:
        yield from _unlike_lengths(sample)
    yield from _swapped_sides(sample, src_lang, tgt_lang)


def _where_common(
    sample: SplitSample, max_share: float, has_problem: Callable[[Pair], object], problem: str
) -> Iterator[str]:
    """The `problem`, if more than `max_share` of the pairs have it.

    In it, `{share}` stands for how many pairs do. Some of their lines follow.
    """
    lines = [pair.line for pair in sample.pairs if has_problem(pair)]
    if len(lines) < max(MIN_LINES, max_share * len(sample.pairs)):
        return
    share = f"{len(lines) / len(sample.pairs):.0%} of the"
    shown = ", ".join(str(line) for line in lines[:3])
    yield f"{sample.files}: {problem.format(share=share)} (lines {shown} …)"


def _left_out_by(sample: SplitSample, setting: str) -> str:
    return f"; [data.filter] {setting} leaves them out" if sample.is_trained_on else ""


def _equal_sides(sample: SplitSample) -> Iterator[str]:
    advice = _left_out_by(sample, "copies = true")
    yield from _where_common(
        sample,
        MAX_EQUAL,
        lambda pair: pair.src == pair.tgt,
        f"{{share}} pairs have the same text on both sides{advice}",
    )


def _tabs_and_headers(sample: SplitSample) -> Iterator[str]:
    """Columns that were taken for text, and their names that were taken for a pair."""
    yield from _where_common(
        sample,
        MAX_TABS,
        lambda pair: pair.has_tab,
        "{share} pairs have a tab; files of columns are named .tsv, or have a src_column",
    )
    for side in (sample.files.src, sample.files.tgt):
        path = side.paths[0]
        names = header_of(path) if side.column is None and named_kind(path) else []
        if names:
            yield (
                f"{path}: line 1 looks like names of columns and not like a pair; if it is, say "
                f"with --columns SRC,TGT which two of them hold the texts: {', '.join(names)} "
                "(src_column and tgt_column in a config)"
            )
            break


def _markup(sample: SplitSample) -> Iterator[str]:
    """Markup, tokenized text, and references that no translation can equal."""

    def has_markup(pair: Pair) -> bool:
        return bool(MARKUP.search(pair.src) or MARKUP.search(pair.tgt))

    def looks_tokenized(pair: Pair) -> bool:
        return is_tokenized(pair.src) or is_tokenized(pair.tgt)

    yield from _where_common(
        sample,
        MAX_MARKUP,
        has_markup,
        "{share} pairs have markup such as &uuml;, &apos; or <b>, which a model learns as if it "
        "were text; [data] unescape = true reads &…; as characters, tags have to be taken out",
    )
    yield from _where_common(
        sample,
        MAX_TOKENIZED,
        looks_tokenized,
        "{share} pairs look tokenized, with a space before the last mark; text that people type "
        "does not: detokenize it",
    )
    if not sample.is_trained_on:
        yield from _where_common(
            sample,
            MAX_UNREACHABLE,
            lambda pair: not pair.is_reachable,
            "{share} targets are not in Unicode's NFC or hold invisible characters, which no "
            "translation has: scores will be too low",
        )


def _repeated_pairs(sample: SplitSample) -> Iterator[str]:
    first_line: dict[tuple[str, str], int] = {}
    for pair in sample.pairs:
        first_line.setdefault((pair.src, pair.tgt), pair.line)
    advice = _left_out_by(sample, "duplicates = true")
    yield from _where_common(
        sample,
        MAX_REPEATED,
        lambda pair: first_line[pair.src, pair.tgt] != pair.line,
        f"{{share}} pairs repeat others{advice}",
    )


def _misaligned(pairs: Sequence[Pair]) -> str | None:
    """Whether the lines of both sides belong together, judged by lengths and numbers."""
    lengths = np.array([(len(pair.src), len(pair.tgt)) for pair in pairs], np.float64)
    num_with_numbers = 0
    num_equal = 0
    for pair in pairs:
        src = numbers_in(pair.src)
        tgt = numbers_in(pair.tgt)
        if src and tgt:  # otherwise, one side may have words for them
            num_with_numbers += 1
            num_equal += src == tgt
    has_other_numbers = (
        num_with_numbers >= MIN_PAIRS and num_equal < MIN_EQUAL_NUMBERS * num_with_numbers
    )
    if has_other_numbers or _correlation(lengths) < MIN_CORRELATION:
        return "source and target lines do not match (judged by lengths and numbers)"
    if len(pairs) < 4 * NUM_WINDOWS * MIN_PAIRS:
        return None
    correlations = [_correlation(window) for window in np.array_split(lengths, NUM_WINDOWS)]
    for number in range(1, NUM_WINDOWS):
        before = np.mean(correlations[:number])
        after = np.mean(correlations[number:])
        if after < MIN_CORRELATION < before / 2:
            line = pairs[number * len(pairs) // NUM_WINDOWS].line
            return f"from about line {line} on, source and target lines do not match"
    return None


def numbers_in(text: str) -> list[int]:
    """The numbers in `text` by value, in whichever script's digits they are written, sorted."""
    return sorted(int(found) for found in NUMBER.findall(text))


def _correlation(lengths: NDArray[np.float64]) -> float:
    """Pearson's, of the two columns (N, 2); 1 where all lengths of a side are equal."""
    if not lengths.std(0).all():
        return 1.0
    src, tgt = lengths.T
    return float(((src - src.mean()) * (tgt - tgt.mean())).mean() / src.std() / tgt.std())


def _unlike_lengths(sample: SplitSample) -> Iterator[str]:
    ratios = np.log([(len(pair.src) + 10) / (len(pair.tgt) + 10) for pair in sample.pairs])
    is_unlike = np.abs(ratios - np.median(ratios)) > np.log(MAX_LENGTH_RATIO)
    unlike_lines = set()
    for pair, is_one in zip(sample.pairs, is_unlike.tolist(), strict=True):
        if is_one:
            unlike_lines.add(pair.line)
    advice = _left_out_by(sample, "max_ratio")
    yield from _where_common(
        sample,
        MAX_UNLIKE,
        lambda pair: pair.line in unlike_lines,
        f"in {{share}} pairs, one side is {MAX_LENGTH_RATIO:g} times longer than the other "
        f"suggests{advice}",
    )


def _swapped_sides(sample: SplitSample, src_lang: str, tgt_lang: str) -> Iterator[str]:
    """Sides in each other's languages: all of them, or many pairs."""

    def is_swapped(src: str, tgt: str) -> bool:
        is_src_swapped = other_language(src, src_lang) == base_language(tgt_lang)
        return is_src_swapped and other_language(tgt, tgt_lang) == base_language(src_lang)

    files = sample.files
    all_src = " ".join(pair.src for pair in sample.pairs)[:LANGUAGE_TEXT]
    all_tgt = " ".join(pair.tgt for pair in sample.pairs)[:LANGUAGE_TEXT]
    if is_swapped(all_src, all_tgt):
        yield (
            f"the sides are swapped: {files.src} looks like {tgt_lang}, and {files.tgt} like "
            f"{src_lang}"
        )
        return
    long = [pair for pair in sample.pairs if min(len(pair.src), len(pair.tgt)) >= MIN_TEXT]
    asked = long[:: max(1, len(long) // LANGUAGE_PAIRS)]
    swapped = [pair for pair in asked if is_swapped(pair.src, pair.tgt)]
    if len(swapped) >= max(MIN_LINES, MAX_SWAPPED * len(asked)):
        yield (
            f"{files}: in {len(swapped) / len(asked):.0%} of the pairs the sides are swapped, for "
            f"example in line {swapped[0].line}"
        )
        return
    src_other = other_language(all_src, src_lang)
    if src_other is not None:
        yield f"{files.src}: the source looks like {src_other}, and should be {src_lang}"
    tgt_other = other_language(all_tgt, tgt_lang)
    if tgt_other is not None:
        yield f"{files.tgt}: the target looks like {tgt_other}, and should be {tgt_lang}"
