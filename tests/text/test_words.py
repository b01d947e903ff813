"""Words: any text comes back, spaces and all."""

import gzip
import json
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mt_cli.errors import ConfigError, DataError
from mt_cli.text import SPECIALS, UNK_ID
from mt_cli.text.normalize import normalize
from mt_cli.text.words import JOINER, WordTokenizer, join_words, split_words

SAMPLE = Path(__file__).parents[2] / "data" / "sample"

# Plain text hardly ever holds what could go wrong.
awkward = st.lists(
    st.sampled_from(
        [JOINER, "<s>", "</s>", "<pad>", "<unk>", "▁", " ", "(", ".", "'s", "z.B.", "ü", "☃"]
    )
).map("".join)


def tokenizer_for(*texts: str, lang: str = "de") -> WordTokenizer:
    known = dict.fromkeys(token for tokens in split_words(texts, lang) for token in tokens)
    return WordTokenizer(lang, [*SPECIALS, *known])


@given(st.text() | awkward, st.sampled_from(["de", "en"]))
@example("(" * 250 + " a" + "." * 101, "de")
@example("https://www.example.org/a?b=c, (z.B.) 3,5kg! can't '90s", "en")
def test_words_join_to_the_text_they_came_from(raw: str, lang: str) -> None:
    text = normalize(raw)
    assert join_words(split_words([text], lang)[0]) == text


@given(st.text() | awkward)
def test_decoding_known_words_gives_the_text_back(raw: str) -> None:
    text = normalize(raw)
    tokenizer = tokenizer_for(text)
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert all(i >= len(SPECIALS) for i in ids)


@pytest.mark.parametrize("lang", ["de", "en"])
def test_every_line_of_the_sample_survives(lang: str) -> None:
    paths = sorted(SAMPLE.glob(f"*.{lang}"))
    lines = [normalize(line) for path in paths for line in path.read_text("utf-8").split("\n")]
    assert len(lines) > 4000
    assert [join_words(tokens) for tokens in split_words(lines, lang)] == lines


def test_words_are_those_of_spacy() -> None:
    import spacy

    text = normalize(
        'Er sagt: "Das ist z.B. ein T-Shirt (rot/blau), nicht wahr?" - 3,5 km/h am 24.12. bei O\'Neill.'
    )
    expected = [token.text for token in spacy.blank("de")(text)]
    assert [token.removeprefix(JOINER) for token in split_words([text], "de")[0]] == expected


def test_joiner_marks_what_follows_without_a_space() -> None:
    assert split_words(["Ein Hund."], "de") == [["Ein", "Hund", f"{JOINER}."]]


def test_special_symbols_in_text_are_words() -> None:
    tokenizer = WordTokenizer("de", [*SPECIALS, "a"])
    ids = tokenizer.encode(["a <s> <pad> </s> <unk> a"])[0]
    assert set(ids) == {UNK_ID, 4}


def test_unknown_word_is_shown_with_spaces_around_it() -> None:
    tokenizer = tokenizer_for("Ein Hund.")
    assert tokenizer.decode(tokenizer.encode(["Ein Dackel."])) == ["Ein <unk>."]


def test_long_run_of_punctuation_is_fast() -> None:
    split_words(["(.)"], "de")  # spaCy is loaded
    text = "(!." * 7000
    started_at = time.process_time()
    assert join_words(split_words([text], "de")[0]) == text
    assert time.process_time() - started_at < 3  # uncut, it takes minutes


def test_tokenizer_survives_its_bytes() -> None:
    tokenizer = tokenizer_for("Schöne Grüße, <s> ￭!")
    again = WordTokenizer.from_bytes("de", tokenizer.to_bytes())
    assert again.entries == tokenizer.entries
    assert again.vocab_size == tokenizer.vocab_size


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[", "not a JSON list"),
        (b'{"a": 1}', "not a JSON list"),
        (b"[1, 2]", "not a JSON list"),
        (json.dumps(["a"]).encode(), "begins with <pad>"),
        (json.dumps([*SPECIALS, "a\nb"]).encode(), "line end"),
        (
            gzip.compress(b"x", mtime=0),
            "not a JSON list",
        ),  # a time in it would change the test's name
    ],
)
def test_malformed_vocabulary_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        WordTokenizer.from_bytes("de", data)


def test_language_without_rules_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no rules for the language 'xq'"):
        split_words(["a"], "xq")
