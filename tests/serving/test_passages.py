"""HTML in and out: tags stand around the words that were aligned to theirs."""

import html
import re
import time
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.serving.passages import Passage, html_pieces, plain_pieces
from mt_cli.translation.lines import Translation


def passage_of(text: str) -> Passage:
    (passage,) = (piece for piece in html_pieces(text) if isinstance(piece, Passage))
    return passage


def written(source: str, found: Translation) -> str:
    """`source` with each passage translated as `found`."""
    pieces = []
    for piece in html_pieces(source):
        pieces.append(piece.written(found) if isinstance(piece, Passage) else piece)
    return "".join(pieces)


def translation(src: str, tgt: str, alignment: str) -> Translation:
    """Of subwords, such as `▁ein ▁Au to .`, and pairs such as 0-1."""
    pairs = [tuple(map(int, pair.split("-"))) for pair in alignment.split()]
    text = tgt.replace(" ", "").replace("▁", " ").strip()
    return Translation(
        text,
        0.0,
        tokens=tuple(tgt.split()),
        src_tokens=tuple(src.split()),
        alignment=tuple((src, tgt) for src, tgt in pairs),
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<b>Das</b> Auto ist blau.", "<b>The</b> car is blue."),
        ("Das <b>Auto</b> ist blau.", "The <b>car</b> is blue."),
        ("Das <a href='?a=1'>Auto ist</a> blau.", "The <a href='?a=1'>car is</a> blue."),
        ("Das <i>Auto <b>ist</b></i> blau.", "The <i>car <b>is</b></i> blue."),
        ("<p>Das Auto\n ist <EM>blau</EM>.</p>\n", "<p>The car is <EM>blue</em>.</p>\n"),
        ("<b>Das Auto ist blau.</b>", "<b>The car is blue.</b>"),
        ("Das <b>Auto ist blau.</b>", "The <b>car is blue</b>."),
        ("<li> <b>Das Auto ist blau.</b> </li>", "<li> <b>The car is blue.</b> </li>"),
    ],
)
def test_tags_stand_around_the_words_of_their_words(source: str, expected: str) -> None:
    found = translation("▁Das ▁Auto ▁ist ▁bla u .", "▁The ▁car ▁is ▁blue .", "0-0 1-1 2-2 3-3 4-4")
    assert written(source, found) == expected


def test_words_in_another_order_keep_their_tags() -> None:
    passage = passage_of("Er hat <b>gestern</b> ein <i>Auto</i> gekauft")
    found = translation(
        "▁Er ▁hat ▁gestern ▁ein ▁Auto ▁gekauft",
        "▁Yesterday ▁he ▁bought ▁a ▁car",
        "2-0 0-1 5-2 3-3 4-4",
    )
    assert passage.written(found) == "<b>Yesterday</b> he bought a <i>car</i>"


def test_what_is_copied_beside_the_tokens_stands_outside_of_tags() -> None:
    passage = passage_of("Ein <b>Hund</b> www.example.org/a <i>bellt</i>")
    found = translation("▁Ein ▁Hund ▁bellt", "▁A ▁dog ▁barks", "0-0 1-1 2-2")
    found = Translation(
        f"{found.text} www.example.org/a",
        0.0,
        tokens=found.tokens,
        src_tokens=found.src_tokens,
        alignment=found.alignment,
    )
    assert passage.written(found) == "A <b>dog</b> <i>barks</i> www.example.org/a"


def test_what_is_copied_keeps_its_tags() -> None:
    passage = passage_of('Ein <b>Hund</b> <a href="/">max@a.de</a> <i>bellt</i> <u>😀</u>')
    found = translation("▁Ein ▁Hund ▁bellt", "▁A ▁dog ▁barks", "0-0 1-1 2-2")
    found = replace(found, text=f"{found.text} max@a.de 😀")
    assert passage.written(found) == (
        'A <b>dog</b> <i>barks</i> <a href="/">max@a.de</a> <u>😀</u>'
    )


@pytest.mark.parametrize("source", ["<b>123</b> <i>456</i>", "(<a href='x'>max@a.de</a>)"])
def test_a_text_without_words_keeps_its_tags(source: str) -> None:
    passage = passage_of(source)
    assert passage.written(Translation(passage.text, 0.0)) == source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('<i class="dog"></i> Das Auto', '<i class="dog"></i> The car'),
        ("<i class='dog'></i>Das Auto", "<i class='dog'></i>The car"),
        ("Das <span><i></i></span><b>Auto</b>", "The <span><i></i></span><b>car</b>"),
        ("Das Auto<sup></sup>", "The car<sup></sup>"),
        ("Das Auto <i class=x>&nbsp;</i>", "The car <i class=x></i>\xa0"),
        ("<a id=x></a>", "<a id=x></a>"),
    ],
)
def test_elements_without_text_stay(source: str, expected: str) -> None:
    found = translation("▁Das ▁Auto", "▁The ▁car", "0-0 1-1")
    assert written(source, found) == expected


def test_tokens_are_not_found_within_an_address() -> None:
    address = f"https://das.de/{'auto-' * 20}ist"
    passage = passage_of(f"<i>{address}</i> Das <b>Auto</b>")
    found = translation("▁Das ▁Auto", "▁The ▁car", "0-0 1-1")
    found = replace(found, text=f"{address} {found.text}")
    assert passage.written(found) == f"<i>{address}</i> The <b>car</b>"


def test_line_ends_stay_where_they_are_seen() -> None:
    pieces = html_pieces("<pre>Ein\n<b>Hund</b>\n\n</pre>Eine\nKatze")
    texts = [piece.text if isinstance(piece, Passage) else piece for piece in pieces]
    assert "".join(texts) == "<pre>Ein\nHund\n\n</pre>Eine Katze"


def test_words_of_a_word_model_are_found() -> None:
    passage = passage_of("Der <b>Hund</b>, groß")
    found = Translation(
        "The dog, big",
        0.0,
        tokens=("The", "dog", "￭,", "big"),
        src_tokens=("Der", "Hund", "￭,", "groß"),
        alignment=((0, 0), (1, 1), (2, 2), (3, 3)),
    )
    assert passage.written(found) == "The <b>dog</b>, big"


@pytest.mark.parametrize(
    "source",
    [
        "Ein <b>Hund",
        "Ein</b> Hund",
        "<b>Ein <i>Hund</b> bellt</i>",
        "<b>a " * 17 + "</b>" * 17,
    ],
)
def test_tags_that_do_not_match_stay_between_the_passages(source: str) -> None:
    pieces = html_pieces(source)
    kept = "".join(piece.text if isinstance(piece, Passage) else piece for piece in pieces)
    assert kept == source
    assert not any(isinstance(piece, Passage) and piece.is_marked_within for piece in pieces)


@pytest.mark.parametrize(
    "expected",
    [
        '<p title="<img src=x onerror=f()>">«Hund»</p>',
        '<img alt="Ein Hund > eine Katze" src=x><p>«Hund»</p>',
        "<button onclick='if (a > \"b\") { f(); }'>«Hund»</button>",
        "<p title=it's>«Hund»</p>",
        "<b-x>«Hund»</b-x>",
        "<!-- <b>Hund</b> > <img src=x onerror=f()> --><p>«Hund»</p>",
        "<p>«Hund»<!-- Hund",
        "<!DOCTYPE html><p>«Hund»",
        "<style>p { color: red; } a > b { margin: 0 }</style><p>«Hund»</p>",
        "<SCRIPT type=x>if (hund < 2) { f('<p>Hund</p>'); }</script ><p>«Hund»</p>",
        "<script>Hund",
        "<scripts>«Hund»</scripts>",
        '<div class="a notranslate">Hund <div>Hund</div> Hund</div><div>«Hund»</div>',
        "<b translate=no>Hund</b> «Hund»",
        '<img translate="no" alt="">«Hund»',
        "<p translate=yes>«Hund»</p>",
        "<p <img src=x onerror=f()>«Hund»</p>",
        "</ <img src=x onerror=f()>«Hund»",
        '<p title="<img src=x onerror=f()>Hund',
        "<!--><p>«Hund»</p><!-- a --!>«Hund»<!--->«Hund»",
        "<svg><![CDATA[ > ]]></svg>«Hund»",
        "<script>1</script x>«Hund»",
        '<p class="notranslate-x" title="a translate=no">«Hund»</p>',
        "<p>«a»</p translate=no><p>«Hund»</p>",
        "«1 < 2 und <3»",
    ],
)
def test_only_texts_are_translated(expected: str) -> None:
    source = re.sub("[«»]", "", expected)
    assert (
        "".join(
            f"«{piece.text}»" if isinstance(piece, Passage) else piece
            for piece in html_pieces(source)
        )
        == expected
    )


@pytest.mark.parametrize(
    "part", ["<a ", "<!--", '<a "', "<a =' <a =\" ", "<script>", "<!", "<p =", '<a ="" ="', "</ "]
)
def test_reading_html_takes_no_longer_a_character_where_there_is_more(part: str) -> None:
    began = time.process_time()
    assert html_pieces(part * 30_000)
    assert time.process_time() - began < 10  # 0.1 s, and minutes if it were quadratic


class Reader(HTMLParser):
    """Counts the tags that are open, and gathers the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


words = st.text(st.sampled_from("abßİ<&>'.\u00a0"), min_size=1, max_size=3)
tagged = st.recursive(
    words.map(html.escape),
    lambda inner: st.tuples(st.sampled_from("bi"), st.lists(inner, max_size=3)).map(
        lambda each: f"<{each[0]}>{' '.join(each[1])}</{each[0]}>"
    ),
    max_leaves=6,
)


@given(st.lists(tagged, max_size=4).map(" ".join), st.data())
def test_any_alignment_gives_html_with_the_text_of_the_translation(
    source: str, data: st.DataObject
) -> None:
    expected = ""
    written = ""
    for piece in html_pieces(source):
        if isinstance(piece, str):
            written += piece
            expected += Reader(piece).text if "<" not in piece else ""
            continue
        tokens = data.draw(st.lists(words.map("▁{}".format), min_size=1, max_size=4))
        src_tokens = tuple(f"▁{word}" for word in piece.text.split())
        alignment = [
            (data.draw(st.integers(0, len(src_tokens) - 1)), tgt) for tgt in range(len(tokens))
        ]
        text = "".join(tokens).replace("▁", " ").strip()
        written += piece.written(
            Translation(
                text,
                0.0,
                tokens=tuple(tokens),
                src_tokens=src_tokens,
                alignment=tuple(alignment),
            )
        )
        expected += text
    reader = Reader(written)
    assert not reader.open
    assert " ".join(reader.text.split()) == " ".join(expected.split())


@given(st.text(st.sampled_from("a \n\r<")))
def test_plain_text_is_its_lines_and_their_ends(text: str) -> None:
    pieces = plain_pieces(text)
    whole = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
    assert whole == text
    assert not any(isinstance(piece, Passage) and "\n" in piece.text for piece in pieces)
