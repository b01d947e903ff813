"""Words: any text comes back, spaces and all."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mt_cli.errors import ConfigError, DataError
from mt_cli.text import SPECIALS, UNK_ID
from mt_cli.text.normalize import normalize
from mt_cli.text.words import JOINER, WordTokenizer, join_words, learn_vocabulary, split_words

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


@settings(max_examples=50)
@given(st.text() | awkward, st.sampled_from(["de", "en"]))
@example("(" * 250 + " a" + "." * 101, "de")
@example("https://www.example.org/a?b=c, (z.B.) 3,5kg! can't '90s", "en")
def test_decoding_known_words_gives_the_text_back(raw: str, lang: str) -> None:
    text = normalize(raw)
    tokenizer = tokenizer_for(text, lang=lang)
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

    text = normalize('Er sagt: "Das ist z.B. ein T-Shirt (rot/blau)?" - 3,5 km/h bei O\'Neill.')
    expected = [token.text for token in spacy.blank("de")(text)]
    assert [token.removeprefix(JOINER) for token in split_words([text], "de")[0]] == expected


def test_long_run_of_punctuation_is_fast() -> None:
    split_words(["(.)"], "de")  # spaCy is loaded
    text = "(!." * 4000
    started_at = time.process_time()
    assert join_words(split_words([text], "de")[0]) == text
    assert time.process_time() - started_at < 3  # uncut, it takes minutes


def test_a_vocabulary_is_what_is_frequent_and_its_size_counts_the_specials() -> None:
    counts = Counter({"b": 2, "a": 2, "c": 3, "d": 2, "e": 1})
    assert learn_vocabulary(counts, max_size=6, min_freq=1) == [*SPECIALS, "c", "a"]
    assert learn_vocabulary(counts, max_size=99, min_freq=2) == [*SPECIALS, "c", "a", "b", "d"]


def test_unknown_words_and_special_symbols_are_unknown_and_shown_with_their_spaces() -> None:
    tokenizer = tokenizer_for("Ein Hund.")
    size = tokenizer.vocab_size
    (ids,) = tokenizer.encode(["Ein Dackel."])
    assert ids[1] == UNK_ID
    assert tokenizer.decode([ids]) == ["Ein <unk>."]
    assert set(tokenizer.encode(["<s> <pad> </s> <unk>"])[0]) == {UNK_ID}
    assert tokenizer.vocab_size == len(tokenizer.entries) == size  # to ask adds nothing


@pytest.mark.parametrize(
    "data",
    [
        b"[",
        b"[1, 2]",
        json.dumps(["a"]).encode(),
        json.dumps([*SPECIALS, "a\nb"]).encode(),
        json.dumps([*SPECIALS, "x", "y", "x"]).encode(),
    ],
    ids=["cut", "numbers", "no specials", "line end", "repeated"],
)
def test_malformed_vocabulary_is_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        WordTokenizer.from_bytes("de", data)


def test_language_without_rules_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="'xq'"):
        split_words(["a"], "xq")
