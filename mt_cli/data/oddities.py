"""What is odd about parallel text, found in a sample of it before anything is made.

An error for what cannot work, a warning for what will probably not: sides that are swapped, lines
that are shuffled, one language twice.
"""

import logging
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import TRAIN, DataConfig
from mt_cli.data.corpora import Corpus, ParallelText, RawPair, Text, is_trained_on, read_pairs
from mt_cli.data.files import has_columns, header_of
from mt_cli.data.filter import KEPT, drop_reason, text_options
from mt_cli.errors import DataError
from mt_cli.text.language import base_language, is_known, other_language
from mt_cli.text.normalize import decode_line, is_normal, is_tokenised, is_valid_utf8, normalize
from mt_cli.text.tokenizer import sampled

log = logging.getLogger(__name__)
MOST_PAIRS = 10_000
"""Of a split that are looked at."""
FEWEST_PAIRS = 50
"""Fewer say nothing of the whole."""
MOST_INVALID = 0.05
"""Share of lines that are not UTF-8 above which a file must be in another encoding."""
MOST_EQUAL, MOST_TABS, MOST_REPEATED, MOST_UNLIKE = 0.2, 0.2, 0.1, 0.1
"""Largest normal shares of pairs that are equal, have tabs, repeat others, or differ much in
length.
"""
MOST_MARKUP = 0.01
"""The same of pairs with markup."""
MOST_TOKENISED = 0.2
"""The same of pairs that look tokenised."""
MOST_UNREACHABLE = 0.01
"""The same of references that no translation can equal."""
MARKUP = re.compile(
    r"&(?:[A-Za-z]{2,8}|#\d{2,5}|#x[0-9A-Fa-f]{2,5});|@[-,./]@|@@ |</?[A-Za-z]{1,6}\b[^<>]{0,200}>"
    r"|\[/?[bi]\]|\{\\i\d\}"
)
"""Entities as `&auml;`, marks of Moses' tokenizer and of BPE, and tags of HTML, forums and
subtitles.
"""
FEW_LINES = 3
"""Fewer odd lines say nothing of a file."""
MOST_KNOWN = 0.02
"""Share of held-out sources that may be in training too."""
FEW_KNOWN = 3
"""Number of held-out sources that may be in training too."""
SWAPPED = 0.1
"""Share of pairs with swapped sides from which on a warning is given."""
ENOUGH_LINES = 300
"""Pairs whose languages are looked at one by one."""
LEAST_TEXT = 20
"""Characters of a line without which its language cannot be told."""
UNLIKE = 3.0
"""Factor by which a side's length may differ from what the other side predicts."""
LEAST_CORRELATION = 0.25
"""Of both sides' lengths. Real translations have 0.6 and more, shuffled ones about 0."""
WINDOWS = 8
"""Parts of a file whose lengths are compared apart, so that lines shifted from some place on are
found.
"""
ENOUGH_TEXT = 20_000
"""Characters that tell a side's language."""
NUMBER = re.compile(r"\d{1,18}")
LEAST_EQUAL_NUMBERS = 0.2
"""Of the pairs with numbers on both sides, the share that have the same ones if they are
translations.
"""
USUAL_ENCODINGS = {
    **dict.fromkeys(("pl", "cs", "sk", "hu", "hr", "sl", "bs", "ro", "sq", "hsb", "dsb"), "cp1250"),
    **dict.fromkeys(("ru", "uk", "bg", "sr", "mk", "be"), "cp1251"),
    **dict.fromkeys(("lt", "lv", "et"), "cp1257"),
    **dict.fromkeys(("ar", "fa", "ur"), "cp1256"),
    "el": "cp1253", "tr": "cp1254", "he": "cp1255", "vi": "cp1258", "th": "cp874",
    "zh": "gb18030", "yue": "big5", "ja": "cp932", "ko": "cp949",
}  # fmt: skip
"""In which text of a language was written before UTF-8; cp1252 where nothing is said."""
ENCODINGS_OF_SCRIPTS = {
    "sr-latn": "cp1250", "zh-tw": "big5", "zh-hk": "big5", "zh-hant": "big5",
}  # fmt: skip
NUM_EXAMPLES = 5
"""Pairs that are shown."""
WIDTH = 35
"""Letters of a side where both stand in one line."""
LONGEST = 64
"""Letters of a side that has a line of its own."""


@dataclass(frozen=True)
class Pair:
    """A normalised pair, and where it stands."""

    line: int
    """From 1."""
    src: str
    tgt: str
    has_tab: bool
    is_reachable: bool
    """Whether a translation can equal the target as it stands in the file."""


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
        return [
            f"line {pair.line}: {shortened(pair.src, LONGEST)}\n    {shortened(pair.tgt, LONGEST)}"
            for pair in shown
        ]


def shown_pair(src: str, tgt: str) -> str:
    """A pair in one line of a terminal."""
    return f"{shortened(src, WIDTH)}  |  {shortened(tgt, WIDTH)}"


def shortened(text: str, width: int) -> str:
    """`text`, or as much of it as `width` letters have room for."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def look_at(files: ParallelText, data: DataConfig, *, is_trained_on: bool) -> Look:
    """Read a split once, and keep a sample of its pairs, or of those that the filter leaves for
    training.

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
            has_tab = any(b"\t" in side.strip() for side in raw)
            found.append(Pair(line, src, tgt, has_tab, is_reachable=is_normal(decode_line(raw[1]))))
    for (text, lines), lang in zip(invalid.items(), (data.src_lang, data.tgt_lang), strict=False):
        if len(lines) > num_lines * MOST_INVALID:
            raise DataError(
                f"{text}: not UTF-8: {len(lines)} of {num_lines} lines are invalid, starting at "
                f"line {lines[0]}; {_advice_on_encoding(text, lines[0], lang)}"
            )
    if len(found) > 1 and all(pair.src == pair.tgt for pair in found):
        raise DataError(f"{files}: both sides are the same text; name the translations of the one")
    if is_trained_on:
        options = text_options(data)
        if data.filter.duplicates:
            found = list({(pair.src, pair.tgt): pair for pair in reversed(found)}.values())[::-1]
        found = [p for p in found if drop_reason(p.src, p.tgt, data.filter, options) == KEPT]
    return Look(files, found, is_trained_on)


def _advice_on_encoding(text: Text, number: int, lang: str) -> str:
    """How to convert a file that is not UTF-8, if the encoding usual in its language can be it."""
    encoding = USUAL_ENCODINGS.get(base_language(lang), "cp1252")
    encoding = ENCODINGS_OF_SCRIPTS.get(lang.lower().replace("_", "-"), encoding)
    line = next(islice(text.lines(), number - 1, None))
    try:
        shown = normalize(line.decode(encoding))
    except UnicodeDecodeError:
        return "find out in which encoding it is, and convert it to UTF-8 with iconv"
    files = shlex.join(map(str, text.paths))
    return (
        f"if line {number} should be {shown[:LONGEST]!r}, convert it, unpacked if it is packed: "
        f"iconv -f {encoding} -t utf-8 {files} > NEW"
    )


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
    sentence = (
        f"{both}: {{}} pairs have a tab; files of columns are named .tsv, or have a src_column"
    )
    yield from _shared(pairs, MOST_TABS, lambda pair: pair.has_tab, sentence)
    yield from _of_markup(look)
    for text in dict.fromkeys((look.files.src, look.files.tgt)):
        names = (
            header_of(text.paths[0]) if text.column is None and has_columns(text.paths[0]) else []
        )
        if names:
            yield (
                f"{text.paths[0]}: line 1 looks like names of columns and not like a pair; if it "
                f"is, name two of them: --columns {','.join(names[:2])} (src_column and tgt_column "
                "in a config)"
            )
            break
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


def _of_markup(look: Look) -> Iterator[str]:
    """Markup, tokenised text, and references as no translation can be."""
    both = str(look.files)
    yield from _shared(
        look.pairs,
        MOST_MARKUP,
        lambda pair: MARKUP.search(pair.src) or MARKUP.search(pair.tgt),
        f"{both}: {{}} pairs have markup such as &uuml;, &apos; or <b>, which a model learns as "
        "if it were text; write plain text in its place (Python: html.unescape)",
    )
    yield from _shared(
        look.pairs,
        MOST_TOKENISED,
        lambda pair: is_tokenised(pair.src) or is_tokenised(pair.tgt),
        f"{both}: {{}} pairs look tokenised, with a space before the last mark; text that people "
        "type does not: detokenise it",
    )
    if not look.is_trained_on:
        yield from _shared(
            look.pairs,
            MOST_UNREACHABLE,
            lambda pair: not pair.is_reachable,
            f"{both}: {{}} targets are not in Unicode's NFC or hold invisible characters, which no "
            "translation has: scores will be too low",
        )


def log_oddities(corpus: Corpus, data: DataConfig) -> str:
    """Look at all splits of `corpus`, and warn of what is odd; gives some training pairs to be
    shown.

    Raises:
        DataError: a split cannot be used.
    """
    unknown = [
        lang
        for lang in (data.src_lang, data.tgt_lang)
        if data.filter.languages and not is_known(lang)
    ]
    if unknown:
        log.warning(
            "data.filter.languages: py3langid does not know %s, and keeps all", ", ".join(unknown)
        )
    examples = list[str]()
    for name, files in corpus.items():
        look = look_at(files, data, is_trained_on=is_trained_on(name))
        for oddity in oddities(look, src_lang=data.src_lang, tgt_lang=data.tgt_lang):
            log.warning("%s: %s", name, oddity)
        if name == TRAIN:
            examples = look.examples()
    return "\n".join(["some training pairs:", *(f"  {example}" for example in examples)])


def warn_of_known_sources(name: str, num_known: int, *, of: int) -> None:
    """Warn if more than a few sources of a held-out split are in training too."""
    if num_known > max(FEW_KNOWN, MOST_KNOWN * of):
        log.warning(
            "%s: %d of its %d sources are in the training pairs too, so that its scores will be "
            "too high; leave them out of training, or let mt-cli config new cut %s off",
            name, num_known, of, name,
        )  # fmt: skip


def _shared(
    pairs: Sequence[Pair], most: float, is_odd: Callable[[Pair], object], sentence: str
) -> Iterator[str]:
    """`sentence` with the share of `pairs` that are odd, if that is `most` or more, and not a few
    lines.
    """
    lines = [pair.line for pair in pairs if is_odd(pair)]
    if len(lines) >= max(FEW_LINES, most * len(pairs)):
        share, shown = f"{len(lines) / len(pairs):.0%} of the", ", ".join(map(str, lines[:3]))
        yield f"{sentence.format(share)} (lines {shown} …)"


def _misaligned(pairs: Sequence[Pair]) -> str | None:
    """What lengths and numbers say of whether the lines of both sides belong together."""
    lengths = np.array([(len(pair.src), len(pair.tgt)) for pair in pairs], np.float64)
    numbers = [(numbers_in(pair.src), numbers_in(pair.tgt)) for pair in pairs]
    numbers = [
        (src, tgt) for src, tgt in numbers if src and tgt
    ]  # else, one side may have words for them
    num_equal = sum(src == tgt for src, tgt in numbers)
    have_own_numbers = len(numbers) >= FEWEST_PAIRS and num_equal < LEAST_EQUAL_NUMBERS * len(
        numbers
    )
    if _correlation(lengths) < LEAST_CORRELATION or have_own_numbers:
        return "source and target lines do not match (judged by lengths and numbers)"
    found = [_correlation(each) for each in np.array_split(lengths, WINDOWS)]
    for number in range(1, WINDOWS if len(pairs) >= 4 * WINDOWS * FEWEST_PAIRS else 0):
        if np.mean(found[number:]) < LEAST_CORRELATION < np.mean(found[:number]) / 2:
            line = pairs[number * len(pairs) // WINDOWS].line
            return f"from about line {line} on, source and target lines do not match"
    return None


def numbers_in(text: str) -> list[int]:
    """The numbers in `text` by value, in whichever script's digits they are written, sorted."""
    return sorted(int(found) for found in NUMBER.findall(text))


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
        f"{both}: in {{}} pairs, one side is {UNLIKE:g} times as long as the other lets "
        f"expect{advice}",
    )  # fmt: skip


def _of_languages(look: Look, src_lang: str, tgt_lang: str) -> Iterator[str]:
    src, tgt = (
        " ".join(side)[:ENOUGH_TEXT]
        for side in zip(*((p.src, p.tgt) for p in look.pairs), strict=True)
    )
    src_other, tgt_other = other_language(src, src_lang), other_language(tgt, tgt_lang)
    files = look.files
    long = [pair for pair in look.pairs if min(len(pair.src), len(pair.tgt)) >= LEAST_TEXT]
    apart = max(1, len(long) // ENOUGH_LINES)
    asked = long[::apart]
    swapped = [
        pair
        for pair in asked
        if other_language(pair.src, src_lang) == base_language(tgt_lang)
        and other_language(pair.tgt, tgt_lang) == base_language(src_lang)
    ]
    if (src_other, tgt_other) == (base_language(tgt_lang), base_language(src_lang)):
        yield f"the sides are swapped: {files.src} looks like {tgt_lang}, and {files.tgt} like {src_lang}"
        return
    if len(swapped) >= SWAPPED * len(asked) > 0:
        share = len(swapped) / len(asked)
        yield (
            f"{files}: in {share:.0%} of the pairs the sides are swapped, for example in line "
            f"{swapped[0].line}"
        )
        return
    for text, other, lang, side in (
        (files.src, src_other, src_lang, "source"),
        (files.tgt, tgt_other, tgt_lang, "target"),
    ):
        if other is not None:
            yield f"{text}: the {side} looks like {other}, and should be {lang}"
