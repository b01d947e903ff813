"""Numbers in text, and whether a translation keeps them."""

import re
import unicodedata
from collections import Counter
from functools import cache

from mt_cli.text.language import base_language

NUMBER = re.compile(r"\d+(?:[.,:'’\u00a0\u202f]\d+)*")
"""Digits, with marks between them: `3,50`, `1.000`, `15:30`."""
WORDS = {
    "de": {
        0: "null", 1: "ein eine einen einem einer eines eins erste ersten erster",
        2: "zwei beide", 3: "drei", 4: "vier",
        5: "fünf", 6: "sechs", 7: "sieben", 8: "acht", 9: "neun", 10: "zehn", 11: "elf",
        12: "zwölf dutzend", 13: "dreizehn", 14: "vierzehn", 15: "fünfzehn", 16: "sechzehn",
        17: "siebzehn", 18: "achtzehn", 19: "neunzehn", 20: "zwanzig", 30: "dreißig",
        40: "vierzig", 50: "fünfzig", 60: "sechzig", 70: "siebzig", 80: "achtzig", 90: "neunzig",
        100: "hundert einhundert", 1000: "tausend eintausend",
    },
    "en": {
        0: "zero no", 1: "a an one first", 2: "two both pair couple second", 3: "three third",
        4: "four fourth", 5: "five fifth", 6: "six sixth", 7: "seven seventh", 8: "eight eighth",
        9: "nine ninth", 10: "ten tenth", 11: "eleven eleventh", 12: "twelve dozen twelfth",
        13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen", 17: "seventeen",
        18: "eighteen", 19: "nineteen", 20: "twenty", 30: "thirty", 40: "forty", 50: "fifty",
        60: "sixty", 70: "seventy", 80: "eighty", 90: "ninety", 100: "hundred", 1000: "thousand",
    },
}  # fmt: skip
"""Number words, by language; listed for some languages only."""
LONGEST_WRITTEN_OUT = 4
"""Maximum digits of a number that may be written out."""
WRITTEN_OUT = 20
"""In other languages, numbers up to this are assumed to be written out."""


def changes_a_number(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> bool:
    """Whether a number in digits on one side is missing on the other.

    The other side may write it out. Digit grouping and decimal marks are ignored.
    """
    src = _numbers(source)
    tgt = _numbers(translation)
    if Counter(src) == Counter(tgt) or Counter(_parts(src)) == Counter(_parts(tgt)):
        return False
    lost = list((Counter(src) - Counter(tgt)).elements())
    added = list((Counter(tgt) - Counter(src)).elements())
    if lost and added and not {base_language(src_lang), base_language(tgt_lang)} <= WORDS.keys():
        return True
    return not (
        all(_is_written_out(number, translation, tgt_lang) for number in lost)
        and all(_is_written_out(number, source, src_lang) for number in added)
    )


def whole_numbers(text: str, lang: str) -> list[tuple[int, tuple[int, int]]]:
    """The whole numbers from two on in `text`, in digits or as a single word, with their places.

    Numbers with marks, such as `3,50`, are skipped.
    """
    cardinals = _cardinals(base_language(lang))
    numbers = []
    for word in re.finditer(rf"{NUMBER.pattern}|[^\W\d_]+", text):
        value = cardinals.get(word[0].casefold(), 0)
        if word[0].isdecimal():
            value = int(word[0])
        if value > 1:
            numbers.append((value, word.span()))
    return numbers


@cache
def _cardinals(lang: str) -> dict[str, int]:
    """The single-word cardinal numbers of a language, with their values."""
    return {words.split()[0]: value for value, words in WORDS.get(lang, {}).items()}


def _numbers(text: str) -> list[str]:
    """The numbers in `text` as ASCII digits, with `.` for every mark that is not for grouping."""
    if not any(map(str.isdecimal, text)):  # a shortcut for nearly every line
        return []
    numbers = []
    for found in NUMBER.finditer(text):
        parts = []
        for part in re.findall(r"\d+", found[0]):
            parts.append("".join(str(unicodedata.decimal(digit)) for digit in part))
        is_grouped = len(parts[0]) <= 3 and all(len(part) == 3 for part in parts[1:])
        numbers.append(("" if is_grouped else ".").join(parts))
    return numbers


def _parts(numbers: list[str]) -> list[str]:
    """The parts between marks: `3.5.2020` and `5/3/2020` have the same ones."""
    return [part for number in numbers for part in number.split(".")]


def _is_written_out(number: str, text: str, lang: str) -> bool:
    """Whether `text` has `number` in words; in most languages, only small numbers can be found."""
    if len(number) > LONGEST_WRITTEN_OUT or not number.isdecimal():
        return False
    known = WORDS.get(base_language(lang))
    if known is None:
        return int(number) <= WRITTEN_OUT
    text = text.casefold()
    value = int(number)
    if value in known:
        words = known[value].split()
        return any(word in words for word in re.findall(r"\w+", text))
    # `two hundred`, `twenty-one`, `zweihundert`, `einundzwanzig`: look for the words of the parts.
    parts = []
    for unit in (1000, 100):
        if value >= unit:
            parts += [value // unit, unit]
            value %= unit
    parts += [value // 10 * 10, value % 10] if value not in known else [value]
    return all(any(word in text for word in known.get(part, "?").split()) for part in parts if part)
