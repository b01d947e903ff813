"""Normalization of all text for training and translation.

References for scoring are never normalized.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import CapitalsReading

# Invisible characters and replacements for lost text: controls other than white space, soft hyphen,
# zero-width and bidi marks, byte order mark, U+FFFD (from `decode_line`, for invalid bytes), lone
# surrogates.
_REMOVED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ufffd\ud800-\udfff]"
)
LOST = "\ufffd"
"""Replaces invalid UTF-8 bytes in `decode_line`."""
JOINERS = re.compile("[\u200c\u200d]+")
"""Zero-width non-joiner and joiner, which are part of words in some scripts and of emoji."""
ZERO_WIDTH_JOINER = "\u200d"
EMOJI_STYLE = "\ufe0f"
JOINING = re.compile(
    "[\u0590-\u1cff\ua800-\uabff\ufb50-\ufdff\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
VIRAMA = 9
"""Combining class of the mark that removes a consonant's vowel in Indic scripts."""


def decode_line(raw: bytes) -> str:
    """Decode a line, with or without its line end; invalid UTF-8 becomes U+FFFD."""
    return strip_line_end(raw).decode("utf-8", errors="replace")


def is_valid_utf8(raw: bytes) -> bool:
    """Whether `raw` is valid UTF-8, so that `decode_line` loses nothing."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def strip_line_end(raw: bytes) -> bytes:
    r"""A line without its line end: `\n`, `\r\n` or `\r`."""
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def split_lines(content: bytes) -> list[str]:
    r"""The lines of a file's `content`. Only `\n` ends one; an unterminated last line counts."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [decode_line(line) for line in lines]


def normalize(text: str, *, lowercase: bool = False) -> str:
    """`text` in NFC, without invisible characters, with single spaces between words. Idempotent.

    Joiners stay where they matter: between letters of scripts that use them, and in emoji.
    """
    is_plain = text.isprintable() and LOST not in text  # then spaces are its only white space
    if not is_plain:
        text = JOINERS.sub(_kept_joiner, _REMOVED.sub("", text))
    if lowercase:
        text = text.lower()
    # After the removals, because they may join a letter and its combining mark.
    text = unicodedata.normalize("NFC", text)
    if is_plain and "  " not in text:
        return text.strip(" ")
    return " ".join(text.split())


SPACED_MARK = re.compile(r"\s[.,。]\s*$")  # French puts a space before ! and ?


def is_tokenized(line: str) -> bool:
    """Whether there is a space before the last mark, as in "A dog runs ."."""
    return SPACED_MARK.search(line) is not None


LOOP = re.compile(r"([^\W\d])\1{3}|(.{2,40}?)\2{2}")
"""A letter four times in a row, or anything longer three times."""


def has_loop(text: str) -> bool:
    """Whether letters or words repeat again and again, as only models write."""
    return any(any(map(str.isalpha, found[0])) for found in LOOP.finditer(text))


def _kept_joiner(found: re.Match[str]) -> str:
    """The replacement for a run of joiners: the first one if the text needs it, else nothing."""
    text = found.string
    before = text[found.start() - 1] if found.start() else " "
    after = text[found.end()] if found.end() < len(text) else " "
    joiner = found[0][0]
    if _is_of_joining_script(after) and not before.isspace():
        return joiner
    if _is_of_joining_script(before):  # at the end of a word: a form of its last letter
        is_virama = unicodedata.combining(before) == VIRAMA
        return joiner if joiner == ZERO_WIDTH_JOINER or is_virama else ""
    is_emoji = before == EMOJI_STYLE or unicodedata.category(before) in ("So", "Sk")
    joins_emoji = is_emoji and unicodedata.category(after) in ("So", "Sm")
    return joiner if joiner == ZERO_WIDTH_JOINER and joins_emoji else ""


def _is_of_joining_script(character: str) -> bool:
    """Whether a character is a letter or mark of a script that uses joiners in words.

    These are scripts of the Near East, Africa, and South and Central Asia.
    """
    return JOINING.match(character) is not None and unicodedata.category(character)[0] in "LM"


def key_of(text: str) -> str:
    """`text` without case, spaces and final marks, to find near-duplicates.

    A text of marks only is its own key.
    """
    text = "".join(normalize(text).casefold().split())
    end = len(text)
    while end and not text[end - 1].isalnum():
        end -= 1
    return text[:end] or text


Hashes = NDArray[np.uint64]
"""64-bit hashes of texts: one false match in 2^64 comparisons."""


def hash_texts(texts: Iterable[str]) -> Hashes:
    """The hashes (N,) of `texts`, the same on every machine."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), np.uint64)


def read_capitals(text: str, reading: CapitalsReading) -> str:
    """`text`, with its case changed by `reading` if it is several words, all in capitals."""
    if reading == "as_is" or not text.isupper() or len(text.split()) < 2:
        return text
    return text.lower() if reading == "lower" else text.title()
