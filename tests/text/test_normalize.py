"""Normalisation: one clean line of any text, and the same when it is done twice."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.text.normalize import decode_line, normalize

any_text = st.text(st.characters(codec=None, exclude_categories=()))


@given(any_text, st.booleans())
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
def test_decode_line_strips_one_line_end_and_replaces_invalid_bytes(raw: bytes, expected: str) -> None:
    assert decode_line(raw) == expected
