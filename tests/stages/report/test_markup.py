"""Markup that text cannot break out of, read back by Python's own HTML parser."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.stages.report.markup import Html, element, escaped, table, visible

HOSTILE = "</p><script>alert(1)</script><img src=x onerror=\"a('b')\">&amp;"


class Reader(HTMLParser):
    """What a page holds: tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_text_stays_text_in_an_element_and_an_attribute() -> None:
    read = Reader(element("p", HOSTILE, title=HOSTILE))
    assert read.tags == ["p"]
    assert (read.text, read.attributes) == (HOSTILE, [("title", HOSTILE)])


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Cn", "Zl", "Zp"])))
def test_text_is_read_back_as_it_was(text: str) -> None:
    read = Reader(element("p", text, title=text))
    assert (read.tags, read.text, read.attributes) == (["p"], text, [("title", text)])


def test_markup_is_not_escaped_again() -> None:
    inner = element("b", "a & b")
    assert element("p", inner) == "<p><b>a &amp; b</b></p>"
    assert escaped(inner) is inner


def test_text_joined_to_markup_is_escaped() -> None:
    assert Html.joined("<", element("b", "x"), between=">") == "&lt;&gt;<b>x</b>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a[U+202E]b"),
        ("\x00", "[U+0000]"),
        ("\ud83d", "[U+D83D]"),
        ("\u200b", "[U+200B]"),
        ("\x1b[31m", "[U+001B][31m"),
        ("\u2066x\u2069", "[U+2066]x[U+2069]"),
        ("שלום 👋 é", "שלום 👋 é"),
    ],
)
def test_invisible_characters_are_shown_by_their_code(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert Reader(element("p", text)).text == shown


@given(st.text(alphabet=st.characters()))
def test_nothing_that_a_file_cannot_hold_is_left(text: str) -> None:
    assert not re.search("[\x00-\x08\u202a-\u202e\ud800-\udfff]", escaped(text))
    escaped(text).encode()


def test_attributes_without_a_value_are_left_out() -> None:
    assert element("p", class_=None, hidden=True, open=False, aria_label="x") == (
        '<p hidden aria-label="x"></p>'
    )


def test_table_scrolls_by_keyboard_and_has_a_name() -> None:
    read = Reader(table(["a", "b"], ["r", "1"], caption="A table"))
    assert read.tags == ["div", "table", "caption", "thead", "tr", "th", "th", "tbody", "tr", "th", "td"]
    assert {("role", "region"), ("aria-label", "A table"), ("tabindex", "0")} <= set(read.attributes)
