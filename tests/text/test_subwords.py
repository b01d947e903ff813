"""Subwords: any text comes back, and none of it becomes a special symbol."""

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mt_cli.errors import ConfigError
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mt_cli.text.normalize import normalize
from mt_cli.text.subwords import SubwordTokenizer, learn_subwords

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
KINDS: tuple[Literal["bpe", "unigram"], ...] = ("bpe", "unigram")
SIZE = 500

AWKWARD = ["<s>", "</s>", "<pad>", "<unk>", "<0x0A>", "▁", "\ue000", "\ue001", " ", "(", ".", "ü"]
awkward = st.lists(st.sampled_from(AWKWARD)).map("".join)


def sample_lines(lang: str) -> list[str]:
    paths = sorted(SAMPLE.glob(f"*.{lang}"))
    return [normalize(line) for path in paths for line in path.read_text("utf-8").split("\n")]


LEARNED = [learn_subwords(sample_lines("en")[:2000], kind=kind, vocab_size=SIZE) for kind in KINDS]
each_kind = pytest.mark.parametrize("tokenizer", LEARNED, ids=KINDS)


@settings(max_examples=100)
@given(st.sampled_from(LEARNED), st.text() | awkward)
@example(LEARNED[0], "<s> </s> <pad> <unk>")
@example(LEARNED[1], "<s> </s> <pad> <unk>")
def test_any_text_comes_back_and_never_yields_special_ids(
    tokenizer: SubwordTokenizer, raw: str
) -> None:
    text = normalize(raw)
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)


@settings(max_examples=50)
@given(st.sampled_from(LEARNED), st.lists(st.integers(0, SIZE - 1)))
def test_decoding_any_ids_gives_one_clean_line(tokenizer: SubwordTokenizer, ids: list[int]) -> None:
    (text,) = tokenizer.decode([ids])
    assert text == normalize(text)


@each_kind
@pytest.mark.parametrize("lang", ["de", "en"])
def test_every_line_of_the_sample_survives(tokenizer: SubwordTokenizer, lang: str) -> None:
    lines = sample_lines(lang)
    assert len(lines) > 4000
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


@each_kind
def test_special_symbols_have_their_ids(tokenizer: SubwordTokenizer) -> None:
    # Padding and sentence ends do not show among the tokens.
    assert tokenizer.tokens([PAD_ID, UNK_ID, BOS_ID, EOS_ID]) == ["<unk>"]
    assert tokenizer.decode([[BOS_ID, UNK_ID, EOS_ID, PAD_ID]]) == ["<unk>"]
    assert tokenizer.vocab_size == SIZE


def test_little_text_yields_fewer_subwords_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = learn_subwords(["ein Hund bellt"], kind="bpe", vocab_size=8000)
    assert 4 + 256 < tokenizer.vocab_size < 300
    assert "8000" in caplog.text


def test_vocabulary_too_small_for_the_letters_names_the_least_size() -> None:
    with pytest.raises(ConfigError, match=r"vocab_size 100 .* \d+"):
        learn_subwords(["ein Hund bellt"], kind="bpe", vocab_size=100)


def test_very_long_lines_are_learned_from_too() -> None:
    # SentencePiece by itself leaves out lines of more than 4,192 bytes.
    tokenizer = learn_subwords(["Ostfriese" * 1000], kind="unigram", vocab_size=290)
    (ids,) = tokenizer.encode(["Ostfriese"])
    assert [token for token in tokenizer.tokens(ids) if token.startswith("<0x")] == []
