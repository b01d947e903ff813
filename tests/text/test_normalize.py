"""Normalisation: one clean line of any text, and the same when it is done twice."""

import html
import unicodedata
from html.entities import html5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.schema import CapitalsReading
from mt_cli.text.normalize import (
    decode_line,
    is_normal,
    normalize,
    read_capitals,
    split_lines,
    unescaped,
)

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Mu\u0308nchen", "München", id="composes"),
        pytest.param("  a \t b\u00a0\u2028c\u0085d\x0be ", "a b c d e", id="spaces"),
        pytest.param("\ufeffHallo", "Hallo", id="byte order mark"),
        pytest.param("Do\u00adnau\u200bdampf", "Donaudampf", id="invisible"),
        pytest.param("\u202bnach rechts\u202c", "nach rechts", id="bidi"),
        pytest.param("a\x00\x1bb\x9fc", "abc", id="control"),
        pytest.param("ka\ufffdputt", "kaputt", id="lost bytes"),
        pytest.param("a\ud800b", "ab", id="lone surrogate"),
        pytest.param("e\u200b\u0301", "é", id="composes what a removal joins"),
        pytest.param("ﬁ Ⅳ 🙂", "ﬁ Ⅳ 🙂", id="keeps what looks special"),
        pytest.param("", "", id="empty"),
        pytest.param("\u200b \ufeff", "", id="nothing visible"),
    ],
)
def test_normalize_handles(text: str, expected: str) -> None:
    assert normalize(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"می{ZWNJ}رود", f"می{ZWNJ}رود", id="Persian"),
        pytest.param(f"کتاب{ZWNJ}ها", f"کتاب{ZWNJ}ها", id="Persian plural"),
        pytest.param(f"क्{ZWJ}ष", f"क्{ZWJ}ष", id="Devanagari half form"),
        pytest.param(f"क्{ZWNJ}ष", f"क्{ZWNJ}ष", id="Devanagari virama"),
        pytest.param(f"ന്{ZWJ} വന്ന", f"ന്{ZWJ} വന്ന", id="Malayalam chillu at the end of a word"),
        pytest.param(f"അവന്{ZWJ}", f"അവന്{ZWJ}", id="Malayalam chillu at the end"),
        pytest.param(f"ශ්{ZWJ}රී", f"ශ්{ZWJ}රී", id="Sinhala"),
        pytest.param(f"👨{ZWJ}👩{ZWJ}👧", f"👨{ZWJ}👩{ZWJ}👧", id="family"),
        pytest.param(f"👩🏽{ZWJ}🚀", f"👩🏽{ZWJ}🚀", id="astronaut with a skin tone"),
        pytest.param(f"❤\ufe0f{ZWJ}🔥", f"❤\ufe0f{ZWJ}🔥", id="heart on fire"),
        pytest.param(f"Auf{ZWNJ}lage", "Auflage", id="Latin"),
        pytest.param(f"со{ZWJ}бака", "собака", id="Cyrillic"),
        pytest.param(f"狗{ZWNJ}跑", "狗跑", id="Chinese"),
        pytest.param(f"{ZWNJ}می", "می", id="before a word"),
        pytest.param(f"می{ZWNJ} رود", "می رود", id="after a word"),
        pytest.param(f"می {ZWNJ}رود", "می رود", id="before the next"),
        pytest.param(f"می{ZWNJ}", "می", id="at the end"),
        pytest.param(f"می{ZWNJ}{ZWNJ}رود", f"می{ZWNJ}رود", id="twice"),
        pytest.param(f"می{ZWNJ}، رود", "می، رود", id="before a mark"),
        pytest.param(f"iPhone{ZWNJ}ها", f"iPhone{ZWNJ}ها", id="Persian ending of a Latin word"),
        pytest.param(f"👩{ZWJ} 🚀", "👩 🚀", id="emoji apart"),
        pytest.param(f"👩{ZWNJ}🚀", "👩🚀", id="the other joiner between emoji"),
        pytest.param(f"{ZWJ}{ZWNJ}", "", id="nothing else"),
    ],
)
def test_joiners_stay_where_a_script_or_an_emoji_needs_them(text: str, expected: str) -> None:
    assert normalize(text) == expected
    assert normalize(expected) == expected


@given(any_text | joined_text)
def test_text_is_normal_if_only_white_space_would_change(text: str) -> None:
    assert is_normal(normalize(text))
    assert is_normal(f" {normalize(text)}\t")
    assert is_normal(text) == (normalize(text).split() == text.split())


@given(st.text())
def test_what_html_escapes_is_read_again(text: str) -> None:
    assert unescaped(html.escape(text).encode(errors="replace")) == text.encode(errors="replace")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Tom&apos;s &quot; &#91; a &#124; b &#93; &amp; c", "Tom's \" [ a | b ] & c"),  # Moses
        ("M&uuml;ller &#228; &#xe4; &frac12;", "Müller ä ä ½"),
        ("&amp;lt;", "&lt;"),
        ("AT&T; R&D &unknown; &copyx; &; &#; 3 &lt 4", None),
    ],
)
def test_entities_are_read_as_characters_and_nothing_else_is(
    line: str, expected: str | None
) -> None:
    assert unescaped(line.encode()).decode() == (line if expected is None else expected)


def test_a_line_of_entities_stays_a_line() -> None:
    entities = [f"&#{code};" for code in range(10, 0x3000)] + [f"&{name}" for name in html5]
    line = " ".join(entities).encode()
    assert split_lines(unescaped(line)) == [decode_line(unescaped(line))]
    assert unescaped(b"a&#10;b&#13;&NewLine;c") == b"a b  c"


def test_normalize_lowercases_on_request() -> None:
    assert normalize("Die STRASSE Ä", lowercase=True) == "die strasse ä"
    assert normalize("Die STRASSE Ä") == "Die STRASSE Ä"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"Hund\n", "Hund"),
        (b"Hund\r\n", "Hund"),
        (b"Hund\r\r\n", "Hund\r"),
        (b"Hund", "Hund"),
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
        ("12 + 3", "lower", "12 + 3"),
        ("", "lower", ""),
    ],
)
def test_only_lines_in_capitals_are_read_in_another_case(
    text: str, reading: CapitalsReading, expected: str
) -> None:
    assert read_capitals(text, reading) == expected
