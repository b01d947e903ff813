"""Normalisation: one clean line of any text, and the same when it is done twice."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.schema import CapitalsReading
from mt_cli.text.normalize import decode_line, normalize, read_capitals

any_text = st.text(st.characters(codec=None, exclude_categories=()))
ZWNJ, ZWJ = "\u200c", "\u200d"
AROUND_JOINERS = [ZWNJ, ZWJ, "\u200b", "\ufe0f", " ", *"aéмیاകന്ക്ष👩🏽❤🔥"]
joined_text = st.text(st.sampled_from(AROUND_JOINERS), max_size=12)
"""Text around joiners: letters of scripts that have them and that have none, marks, and emoji."""


@given(any_text | joined_text, st.booleans())
def test_normalizing_twice_changes_nothing(text: str, lowercase: bool) -> None:
    once = normalize(text, lowercase=lowercase)
    assert normalize(once, lowercase=lowercase) == once


@given(any_text)
def test_normalized_text_is_one_clean_line(text: str) -> None:
    clean = normalize(text)
    assert unicodedata.is_normalized("NFC", clean)
    assert clean == " ".join(clean.split())
    assert not {unicodedata.category(c) for c in clean} & {"Cc", "Cs", "Zl", "Zp"}


CLEANED = {
    "composes": ("Mu\u0308nchen", "München"),
    "spaces": ("  a \t b\u00a0\u2028c\u0085d\x0be ", "a b c d e"),
    "byte order mark": ("\ufeffHallo", "Hallo"),
    "invisible": ("Do\u00adnau\u200bdampf", "Donaudampf"),
    "bidi": ("\u202bnach rechts\u202c", "nach rechts"),
    "lone surrogate": ("a\ud800b", "ab"),
    "composes what a removal joins": ("e\u200b\u0301", "é"),
    "nothing visible": ("\u200b \ufeff", ""),
    "Latin": (f"Auf{ZWNJ}lage", "Auflage"),
    "before the next": (f"می {ZWNJ}رود", "می رود"),
    "twice": (f"می{ZWNJ}{ZWNJ}رود", f"می{ZWNJ}رود"),
    "the other joiner between emoji": (f"👩{ZWNJ}🚀", "👩🚀"),
    "nothing else": (f"{ZWJ}{ZWNJ}", ""),
}
JOINED = {
    "Persian": f"می{ZWNJ}رود",
    "Devanagari half form": f"क्{ZWJ}ष",
    "Malayalam chillu at the end of a word": f"ന്{ZWJ} വന്ന",
    "astronaut with a skin tone": f"👩🏽{ZWJ}🚀",
    "heart on fire": f"❤\ufe0f{ZWJ}🔥",
    "Persian ending of a Latin word": f"iPhone{ZWNJ}ها",
}


@pytest.mark.parametrize(("text", "expected"), CLEANED.values(), ids=CLEANED)
def test_what_does_not_belong_in_a_line_is_cleaned(text: str, expected: str) -> None:
    assert normalize(text) == expected


@pytest.mark.parametrize("text", JOINED.values(), ids=JOINED)
def test_joiners_stay_where_a_script_or_an_emoji_needs_them(text: str) -> None:
    assert normalize(text) == text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"Hund\r\n", "Hund"),
        (b"Hund\r\r\n", "Hund\r"),
        (b"\xff\xfe kaputt\n", "\ufffd\ufffd kaputt"),
        ("a\u2028b\x85".encode(), "a\u2028b\x85"),
    ],
)
def test_decode_line_strips_one_line_end_and_replaces_invalid_bytes(
    raw: bytes, expected: str
) -> None:
    assert decode_line(raw) == expected


@pytest.mark.parametrize(
    ("text", "reading", "expected"),
    [
        ("ZWEI MÄNNER IN DER STRASSE.", "lower", "zwei männer in der strasse."),
        ("ZWEI MÄNNER.", "title", "Zwei Männer."),
        ("ZWEI MÄNNER.", "as_is", "ZWEI MÄNNER."),
        ("NATO", "lower", "NATO"),
        ("Die NATO und die EU", "lower", "Die NATO und die EU"),
    ],
)
def test_only_lines_in_capitals_are_read_in_another_case(
    text: str, reading: CapitalsReading, expected: str
) -> None:
    assert read_capitals(text, reading) == expected
