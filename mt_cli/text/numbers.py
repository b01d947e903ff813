"""Numbers in digits, and whether a translation keeps them."""

import re
import unicodedata
from collections import Counter

from mt_cli.text.language import base_language

NUMBER = re.compile(r"\d+(?:[.,:'’\u00a0\u202f]\d+)*")
"""Digits, with marks between them: `3,50`, `1.000`, `15:30`."""
WORDS = {
    "de": {
        1: "ein eine einen einem einer eines eins", 2: "zwei beide", 3: "drei", 4: "vier",
        5: "fünf", 6: "sechs", 7: "sieben", 8: "acht", 9: "neun", 10: "zehn", 11: "elf",
        12: "zwölf dutzend", 13: "dreizehn", 14: "vierzehn", 15: "fünfzehn", 16: "sechzehn",
        17: "siebzehn", 18: "achtzehn", 19: "neunzehn", 20: "zwanzig", 30: "dreißig",
        40: "vierzig", 50: "fünfzig", 60: "sechzig", 70: "siebzig", 80: "achtzig", 90: "neunzig",
        100: "hundert einhundert", 1000: "tausend eintausend",
    },
    "en": {
        1: "a an one", 2: "two both pair couple", 3: "three", 4: "four", 5: "five", 6: "six",
        7: "seven", 8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve dozen",
        13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen", 17: "seventeen",
        18: "eighteen", 19: "nineteen", 20: "twenty", 30: "thirty", 40: "forty", 50: "fifty",
        60: "sixty", 70: "seventy", 80: "eighty", 90: "ninety", 100: "hundred", 1000: "thousand",
    },
}  # fmt: skip
"""How numbers are written out in the languages for which somebody has listed it."""
WRITTEN_OUT = 20
"""In other languages, smaller numbers are taken to be written out."""


def changes_a_number(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> bool:
    """Whether a number in digits on one side has no like on the other.

    One that the other side writes out has. How digits are grouped does not count.
    """
    src = _numbers(source)
    tgt = _numbers(translation)
    if src == tgt or "".join(src) == "".join(tgt):
        return False
    lost = list((Counter(src) - Counter(tgt)).elements())
    added = list((Counter(tgt) - Counter(src)).elements())
    if lost and added and not {base_language(src_lang), base_language(tgt_lang)} <= WORDS.keys():
        return True
    return not (
        all(_is_written_out(number, translation, tgt_lang) for number in lost)
        and all(_is_written_out(number, source, src_lang) for number in added)
    )


def _numbers(text: str) -> list[str]:
    """The digits of each number of `text`, as ASCII."""
    if not any(map(str.isdecimal, text)):  # nearly every line, at a glance
        return []
    numbers = []
    for found in NUMBER.finditer(text):
        digits = filter(str.isdecimal, found[0])
        numbers.append("".join(str(unicodedata.decimal(digit)) for digit in digits))
    return numbers


def _is_written_out(number: str, text: str, lang: str) -> bool:
    """Whether `text` has `number` as a word; of most languages only the smaller ones may be."""
    value = int(number)
    known = WORDS.get(base_language(lang))
    if known is None:
        return value <= WRITTEN_OUT
    words = known.get(value, "").split()
    return any(word in words for word in re.findall(r"\w+", text.casefold()))
