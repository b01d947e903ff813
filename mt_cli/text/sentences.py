"""Splitting text into sentences, with sentencex, or into shorter pieces."""

import re
from collections.abc import Callable
from itertools import pairwise

import sentencex

from mt_cli.text.language import base_language, sentence_space

ORDINAL_DOT = (
    "bs", "cs", "da", "de", "dsb", "et", "eu", "fi", "fo", "hr", "hsb", "hu", "is", "lb", "lv",
    "nds", "mk", "nn", "no", "pl", "sk", "sl", "sr", "sv", "tr",
)  # fmt: skip
"""Languages that write `3.` where English writes `3rd`."""
ORDINAL = re.compile(r"(?:^|\W)(?:\d{1,2}|[IVX]{1,5})\.\s*$")
INITIAL = re.compile(r"(?:^|(?<!\d)\s)[^\W\d_]\.\s*$")
"""A single letter, as in `M. Dupont`, but not a unit, as in `5 m.`"""
BRACKET_END = re.compile(r"[.!?…][)\]]\s$")
WHOLE_BRACKET = re.compile(r"[(\[][^()\[\]]*\s[^()\[\]]*\w\w[.!?…][)\]]\s$")
"""A bracket with several words, the last of which has more than one letter."""
ADDRESS = re.compile(r"www\.|://|@|/")
"""Signs of an address: no word has them."""
CJK = r"[\u3040-\u9fff]"
HARD_END = re.compile(
    r"(?<=[。！？｡।॥؟۔។៕།༎။።])(?![”’»」』）\s])"
    rf"|(?<={CJK}[!?])(?={CJK})|(?<=……)(?={CJK})|(?<=… )(?=[A-ZÄÖÜ])"
    r"|(?<=[.!?…][)\]] )(?=[A-ZÄÖÜ\"“„(])|(?<=\b[Nn]o\. )(?=[A-ZÄÖÜ])|(?<=\d \w\. )(?=[A-ZÄÖÜ])"
)
"""Sentence ends that sentencex does not know: full stops of other scripts, between CJK letters,
after `…`, after a bracket, after the word `no.` without a number, and after a one-letter unit.
"""
SOFT_START = re.compile(r"(?<=[.!?…] )[^\W_]")
"""Possible start of a sentence without a capital letter: a digit or a small letter."""
LONG_WORD = re.compile(r"[^\W\d_]{5}[.!?…]+ $")
"""A word that ends a sentence even before a small letter: few abbreviations are as long."""
LONGEST_END = 200
"""Characters at the end of a sentence that are looked at, so that long lines take linear time."""
CLAUSE_END = re.compile(r"[,;:–،؛၊][\"”“’»«)\]]* |[，；：、]")
SPACE = re.compile(" ")


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of normalized `text`; a list number `3.` belongs to the next sentence."""
    language = base_language(lang)
    pieces: list[str] = []
    begin = 0
    for segment in sentencex.segment(language, _with_capitals(text)):
        end = begin + len(segment)
        pieces += HARD_END.split(text[begin:end])
        begin = end
    if len(pieces) < 2:
        return [text] if text else []
    sentences: list[str] = []
    beginning = ""
    has_words = False
    for piece, following in pairwise([*pieces, " "]):
        beginning += piece
        has_words = has_words or any(map(str.isalpha, piece))
        if has_words and _is_end(beginning[-LONGEST_END:], following, language):
            sentences.append(beginning)
            beginning = ""
            has_words = False
    if sentences:  # marks without words belong to the previous sentence
        sentences[-1] += beginning
    elif beginning.strip():
        sentences.append(beginning)
    return [sentence.strip() for sentence in sentences]


def _with_capitals(text: str) -> str:
    """`text` with capitals at possible sentence starts without one, for sentencex."""
    is_lower = text == text.lower()

    def capital(found: re.Match[str]) -> str:
        letter = found[0]
        upper = letter.upper()
        before = text[max(0, found.start() - LONGEST_END) : found.start()]
        if letter.isdigit():
            return letter if before.endswith("str. ") else "X"
        if upper == letter or len(upper) > 1:
            return letter
        return upper if is_lower or LONG_WORD.search(before) else letter

    return SOFT_START.sub(capital, text)


def _is_end(sentence: str, following: str, language: str) -> bool:
    """Whether a sentence ends here: not after an ordinal or an initial, and not inside a word."""
    if language in ORDINAL_DOT and ORDINAL.search(sentence):
        return False
    is_short_bracket = BRACKET_END.search(sentence) and not WHOLE_BRACKET.search(sentence)
    if INITIAL.search(sentence) or is_short_bracket:
        return False
    if sentence[-1].isspace() or following.isspace():
        return True
    if re.search(rf"{CJK}.$", sentence):
        return True
    if sentence[-1] in ".!?":  # without a space: `läuft.Zwei`, but not `z.B.` or an address
        last_word = sentence.rsplit(maxsplit=1)[-1]
        starts_anew = following[:1].isupper() and following[1:2].islower()
        return starts_anew and sentence[-4:-1].isalpha() and not ADDRESS.search(last_word)
    return True


def split_text(
    text: str,
    lang: str,
    *,
    num_tokens: Callable[[str], int],
    longest: int,
    longest_together: int,
    most_together: int,
) -> list[str]:
    """Split `text` into parts of at most `longest` tokens each, or single characters.

    Up to `most_together` sentences with up to `longest_together` tokens stay together. A sentence
    that is too long is halved near its middle, after a clause, else after a word, else anywhere.
    """

    def fits(part: str) -> bool:
        return num_tokens(part) <= longest

    parts: list[str] = []
    num_together = 0
    for sentence in split_sentences(text, lang):
        longer = f"{parts[-1]}{sentence_space(lang)}{sentence}" if parts else ""
        if 0 < num_together < most_together and num_tokens(longer) <= longest_together:
            parts[-1] = longer
            num_together += 1
        else:
            pieces = cut_to_fit(sentence, fits)
            parts += pieces
            num_together = 1 if len(pieces) == 1 else 0
    return parts


def cut_to_fit(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Halve a sentence until each part `fits` or is a single character."""
    if fits(text) or len(text) == 1:
        return [text]
    clauses = _ends(CLAUSE_END, text)
    words = _ends(SPACE, text)
    places = clauses or words or [len(text) // 2]
    middle = min(places, key=lambda place: abs(2 * place - len(text)))
    parts: list[str] = []
    for begin, end in pairwise([0, middle, len(text)]):
        parts += cut_to_fit(text[begin:end].strip(), fits)
    return parts


def _ends(pattern: re.Pattern[str], text: str) -> list[int]:
    """Indices inside `text` where a match of `pattern` ends."""
    return [match.end() for match in pattern.finditer(text) if match.end() < len(text)]
