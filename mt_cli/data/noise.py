"""Noise in text as people type it: no capitals or accents, typos, several lines in one.

Used for noisy copies of training pairs (`[data.augment]`) and noisy test sets (`evaluate --noise`).
"""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import MORE, TRAIN, DataConfig, Language, NoiseKind
from mt_cli.data.corpora import Corpus, ParallelText, RawPair
from mt_cli.text.language import base_language, sentence_space
from mt_cli.text.normalize import decode_line
from mt_cli.text.numbers import whole_numbers

KEYBOARDS: Mapping[str, tuple[str, ...]] = {
    "de": ("qwertzuiopü", "asdfghjklöä", "yxcvbnm"),
    "en": ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    "fr": ("azertyuiop", "qsdfghjklm", "wxcvbn"),
    "ru": ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
}
"""The letters of keyboards, row by row; other languages use the English one."""
UMLAUTS = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"}
NORDIC = {"æ": "ae", "ø": "oe", "å": "aa"}
TRANSLITERATIONS: Mapping[str, Mapping[str, str]] = {
    "de": UMLAUTS,
    "da": NORDIC,
    "nb": NORDIC,
    "nn": NORDIC,
    "no": NORDIC,
}
"""How a language spells letters without accents; in other languages, accents are dropped."""
WITHOUT_ACCENT = {
    "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ð": "d", "đ": "d", "þ": "th", "ł": "l", "ı": "i",
}  # fmt: skip
"""Letters that Unicode does not decompose."""
WORDS_PER_TYPO = 12
TYPED_WORD = re.compile(r"[^\W\d_]{3,}")
"""A word that is long enough to be recognizable with a typo."""
FINAL_MARK = re.compile(r"\s*[.!?。！？।]+\s*$")


def make_noise(text: str, kind: NoiseKind, lang: Language, rng: Random) -> str:
    """`text` in the language `lang` with noise of this `kind`, one of `NOISES`."""
    return NOISES[kind](text, lang, rng)


def without_accents(text: str, lang: Language, rng: Random) -> str:
    """Without accents: ä becomes ae in German, and a in Finnish."""
    return "".join(_plain_letter(letter, base_language(lang)) for letter in text)


def title(text: str, lang: Language, rng: Random) -> str:
    """With a capital at the beginning of each word."""
    return re.sub(r"\S+", lambda word: word[0][:1].upper() + word[0][1:], text)


def typos(text: str, lang: Language, rng: Random) -> str:
    """With one typo, plus one per `WORDS_PER_TYPO` words."""
    for _ in range(1 + len(text.split()) // WORDS_PER_TYPO):
        words = [match.span() for match in TYPED_WORD.finditer(text)]
        if not words:
            break
        begin, end = rng.choice(words)
        place = rng.randrange(begin, end - 1)
        text = text[:place] + _mistyped(text[place : place + 2], lang, rng) + text[place + 2 :]
    return text


def punctuation(text: str, lang: Language, rng: Random) -> str:
    """Mostly without the final mark; otherwise with a space before it, or doubled."""
    match = FINAL_MARK.search(text)
    if match is None:
        return text
    body = text[: match.start()]
    mark = match[0].strip()
    return rng.choice([body, body, f"{body} {mark}", f"{body}{mark}{mark}"])


def mixed(text: str, lang: Language, rng: Random) -> str:
    """In another case, mostly lower, and with one or two more kinds of noise."""
    kinds: list[NoiseKind] = ["accents", "typos", "punctuation"]
    kinds = rng.sample(kinds, rng.randint(1, 2))
    kinds.append(rng.choice(("lower", "lower", "lower", "capitals")))
    for kind in kinds:
        text = make_noise(text, kind, lang, rng)
    return text


NOISES: Mapping[NoiseKind, Callable[[str, Language, Random], str]] = {
    "lower": lambda text, _lang, _rng: text.lower(),
    "capitals": lambda text, _lang, _rng: text.upper(),
    "title": title,
    "accents": without_accents,
    "typos": typos,
    "punctuation": punctuation,
    "mixed": mixed,
}
"""The kinds of noise that change a single line."""


def joined(lines: Iterable[str], lang: Language) -> str:
    """Join several lines into one."""
    return sentence_space(lang).join(lines)


MAX_DIGITS = 6
PHRASES: Mapping[str, Sequence[str]] = {
    "de": (
        "um {hour}:{minute:02} Uhr", "für {whole},{cents:02} Euro", "im Jahr {year}",
        "mit {whole} Leuten", "seit {whole} Tagen", "in {whole} Minuten", "für {whole} Euro",
    ),
    "en": (
        "at {hour}:{minute:02}", "for {whole}.{cents:02} euros", "in {year}",
        "with {whole} people", "for {whole} days", "in {whole} minutes", "for {whole} euros",
    ),
}  # fmt: skip
"""Phrases with numbers to append to a sentence; listed for some languages only."""
PHRASE_SHARE = 0.25
"""Share of sentences without a number that get such a phrase."""
GROUPED_SHARE = 0.25
"""Share of numbers written with grouped digits, if they have enough."""
REPEATED_SHARE = 0.25
"""Share of numbers with at most two different digits, such as 77: models double or drop them."""
GROUPING = {"de": ".", "en": ","}
"""The mark between groups of three digits, by language."""


def with_another_number(
    src: str, tgt: str, src_lang: Language, tgt_lang: Language, rng: Random
) -> tuple[str, str]:
    """Put the same random number, in digits, into both sides, as each language writes it.

    If each side has a single number, in digits or as a word, and both are equal, it is replaced.
    Some sentences without numbers get a phrase with one. Other pairs are unchanged.
    """
    src_lang = base_language(src_lang)
    tgt_lang = base_language(tgt_lang)
    of_src = whole_numbers(src, src_lang)
    of_tgt = whole_numbers(tgt, tgt_lang)
    if len(of_src) == len(of_tgt) == 1 and of_src[0][0] == of_tgt[0][0]:
        number = _number(rng, MAX_DIGITS)
        grouped = rng.random() < GROUPED_SHARE
        return (
            _replaced(src, of_src[0][1], number, GROUPING.get(src_lang, "") if grouped else ""),
            _replaced(tgt, of_tgt[0][1], number, GROUPING.get(tgt_lang, "") if grouped else ""),
        )
    has_digits = any(map(str.isdecimal, src + tgt))
    if of_src or of_tgt or has_digits or not {src_lang, tgt_lang} <= PHRASES.keys():
        return src, tgt
    if rng.random() >= PHRASE_SHARE:
        return src, tgt
    values = {
        "hour": rng.randrange(24),
        "minute": rng.randrange(60),
        "whole": _number(rng, 3),
        "cents": rng.randrange(100),
        "year": rng.randrange(1900, 2050),
    }
    which = rng.randrange(len(PHRASES["en"]))
    return (
        _followed(src, PHRASES[src_lang][which].format(**values)),
        _followed(tgt, PHRASES[tgt_lang][which].format(**values)),
    )


def _number(rng: Random, max_digits: int) -> int:
    """A random number of at least 2."""
    length = rng.randint(1, max_digits)
    if length > 1 and rng.random() < REPEATED_SHARE:
        first = rng.choice("123456789")
        two_digits = first + rng.choice("0123456789")
        return int(first + "".join(rng.choices(two_digits, k=length - 1)))
    return rng.randrange(2, 10**length)


def _replaced(text: str, span: tuple[int, int], number: int, mark: str) -> str:
    begin, end = span
    return text[:begin] + f"{number:,}".replace(",", mark) + text[end:]


def _followed(text: str, phrase: str) -> str:
    """Insert `phrase` before the final mark of `text`."""
    match = FINAL_MARK.search(text)
    end = len(text) if match is None else match.start()
    return f"{text[:end].rstrip()} {phrase}{text[end:]}"


def noisy_pair(
    src: str, tgt: str, kind: NoiseKind, src_lang: Language, tgt_lang: Language, rng: Random
) -> tuple[str, str]:
    """A pair with noise of this `kind` (not `join`): in the source, or in both (`numbers`)."""
    if kind == "numbers":
        return with_another_number(src, tgt, src_lang, tgt_lang, rng)
    return make_noise(src, kind, src_lang, rng), tgt


def noisy_test_set(
    sources: list[str], refs: list[str], kind: NoiseKind, *, src_lang: Language, tgt_lang: Language
) -> tuple[list[str], list[str]]:
    """The sources with noise of this `kind`, and their references; deterministic.

    `join` puts every two neighbouring lines into one, on both sides.
    """
    if kind == "join":
        of_src = [joined(lines, src_lang) for lines in _twos(sources)]
        return of_src, [joined(lines, tgt_lang) for lines in _twos(refs)]
    noisy = []
    for number, (src, ref) in enumerate(zip(sources, refs, strict=True)):
        rng = Random(f"{kind} {number}")
        noisy.append(noisy_pair(src, ref, kind, src_lang, tgt_lang, rng))
    return [src for src, _ in noisy], [ref for _, ref in noisy]


def _twos(lines: list[str]) -> Iterator[list[str]]:
    for begin in range(0, len(lines), 2):
        yield lines[begin : begin + 2]


def _mistyped(letters: str, lang: Language, rng: Random) -> str:
    """Two letters with a typo in the first: dropped, doubled, swapped, or a neighbouring key."""
    first, second = letters[0], letters[1]
    neighbours = _keys_beside(first.lower(), base_language(lang))
    errors = [second, first + first + second, second + first]
    if neighbours:
        key = rng.choice(neighbours)
        errors.append((key.upper() if first.isupper() else key) + second)
    return rng.choice(errors)


@cache
def _keys_beside(letter: str, language: str) -> str:
    """The letters on neighbouring keys of `letter`; empty if the keyboard does not have it."""
    rows = KEYBOARDS.get(language, KEYBOARDS["en"])
    for number, row in enumerate(rows):
        place = row.find(letter)
        if place >= 0:
            beside = row[max(0, place - 1) : place] + row[place + 1 : place + 2]
            for other in rows[max(0, number - 1) : number] + rows[number + 1 : number + 2]:
                beside += other[place : place + 1]
            return beside
    return ""


@cache
def _plain_letter(letter: str, language: str) -> str:
    """A letter without its accent; non-Latin letters are unchanged."""
    if letter.isascii():
        return letter
    spellings = {**WITHOUT_ACCENT, **TRANSLITERATIONS.get(language, {})}
    plain = spellings.get(letter.lower())
    if plain is not None:
        return plain.capitalize() if letter.isupper() else plain
    if "LATIN" not in unicodedata.name(letter, ""):
        return letter
    decomposed = unicodedata.normalize("NFD", letter)
    return "".join(character for character in decomposed if not unicodedata.combining(character))


MAX_JOINED = 3
SEED = 1


@dataclass(frozen=True)
class NoisyPairs:
    """Noisy copies of the pairs of some `parts` of a corpus.

    Which pairs are copied, and how, depends only on the part and the line. Dropped pairs are not
    copied.
    """

    parts: Mapping[str, ParallelText]
    drops: Mapping[str, NDArray[np.uint8]]
    """By part, for each line: 0 if the pair is kept. All pairs of other parts are kept."""
    data: DataConfig

    @staticmethod
    def of(
        corpus: Corpus, data: DataConfig, drops: Mapping[str, NDArray[np.uint8]]
    ) -> "NoisyPairs | None":
        """The copies that `[data.augment]` adds to `corpus`; None if it is off.

        Parts that are not in `corpus`, because a run has not translated them yet, are skipped.
        """
        if not data.augment.shares:
            return None
        names = [name if name == TRAIN else f"{MORE}{name}" for name in data.augment.parts]
        return NoisyPairs({name: corpus[name] for name in names if name in corpus}, drops, data)

    def __str__(self) -> str:
        return f"noisy copies of {', '.join(map(str, self.parts.values()))}"

    def pairs(self) -> Iterator[RawPair]:
        """The noisy copies as raw lines."""
        for number, name in enumerate(self.parts):
            yield from self._copies(name, seed=f"{SEED} {number}")

    def _copies(self, name: str, *, seed: str) -> Iterator[RawPair]:
        latest: deque[RawPair] = deque(maxlen=MAX_JOINED)
        drops = self.drops.get(name)
        for number, pair in enumerate(self.parts[name].pairs()):
            if drops is not None and drops[number]:
                continue
            latest.append(pair)
            rng = Random(f"{seed} {number}")
            for kind, share in self.data.augment.shares.items():
                if rng.random() >= share:
                    continue
                if kind == "join":
                    count = rng.randint(2, MAX_JOINED)
                    if len(latest) >= count:
                        yield self._joined(list(latest)[-count:])
                else:
                    before = decode_line(pair[0]), decode_line(pair[1])
                    src, tgt = noisy_pair(
                        *before, kind, self.data.src_lang, self.data.tgt_lang, rng
                    )
                    if (src, tgt) != before or kind != "numbers":
                        yield src.encode(), tgt.encode()

    def _joined(self, pairs: Sequence[RawPair]) -> RawPair:
        src = joined([decode_line(src) for src, _ in pairs], self.data.src_lang)
        tgt = joined([decode_line(tgt) for _, tgt in pairs], self.data.tgt_lang)
        return src.encode(), tgt.encode()
