"""Subwords: any text comes back, and none of it becomes a special symbol."""

import pickle
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mt_cli.errors import ConfigError, DataError
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from mt_cli.text.normalize import normalize
from mt_cli.text.subwords import SubwordTokenizer, learn_subwords

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
KINDS: tuple[Literal["bpe", "unigram"], ...] = ("bpe", "unigram")
SIZE = 500

awkward = st.lists(
    st.sampled_from(
        ["<s>", "</s>", "<pad>", "<unk>", "<0x0A>", "▁", "\ue000", "\ue001", " ", "(", ".", "ü"]
    )
).map("".join)


def sample_lines(lang: str) -> list[str]:
    paths = sorted(SAMPLE.glob(f"*.{lang}"))
    return [normalize(line) for path in paths for line in path.read_text("utf-8").split("\n")]


LEARNED = {
    kind: learn_subwords(sample_lines("en")[:2000], kind=kind, vocab_size=SIZE) for kind in KINDS
}

each_kind = pytest.mark.parametrize("tokenizer", [LEARNED[kind] for kind in KINDS], ids=KINDS)
any_kind = st.sampled_from([LEARNED[kind] for kind in KINDS])


@settings(max_examples=50)
@given(any_kind, st.text() | awkward)
def test_decoding_gives_the_text_back(tokenizer: SubwordTokenizer, raw: str) -> None:
    text = normalize(raw)
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]


@settings(max_examples=50)
@given(any_kind, st.text() | awkward)
@example(LEARNED["bpe"], "<s> </s> <pad> <unk>")
@example(LEARNED["unigram"], "<s> </s> <pad> <unk>")
def test_text_never_yields_special_ids(tokenizer: SubwordTokenizer, raw: str) -> None:
    (ids,) = tokenizer.encode([normalize(raw)])
    assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)


@settings(max_examples=50)
@given(any_kind, st.lists(st.integers(0, SIZE - 1)))
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
    assert len(SPECIALS) == 4


@each_kind
def test_control_character_of_a_byte_piece_is_removed(tokenizer: SubwordTokenizer) -> None:
    pieces = {tokenizer.tokens([i])[0]: i for i in range(4, tokenizer.vocab_size)}
    (word,) = tokenizer.encode(["the"])
    assert tokenizer.decode([[*word, pieces["<0x0A>"], *word, pieces["<0x07>"]]]) == ["the the"]


@pytest.mark.parametrize("kind", KINDS)
def test_little_text_yields_fewer_subwords_with_a_warning(
    kind: Literal["bpe", "unigram"], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = learn_subwords(["ein Hund bellt"], kind=kind, vocab_size=8000)
    assert 4 + 256 < tokenizer.vocab_size < 300
    assert "8000" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_too_small_for_the_letters_names_the_least_size(
    kind: Literal["bpe", "unigram"],
) -> None:
    with pytest.raises(ConfigError, match=r"vocab_size 100 .* \d+"):
        learn_subwords(["ein Hund bellt"], kind=kind, vocab_size=100)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["", " "], ids=["one word", "many words"])
def test_very_long_lines_are_learned_from_too(kind: Literal["bpe", "unigram"], end: str) -> None:
    # SentencePiece by itself leaves out lines of more than 4,192 bytes.
    tokenizer = learn_subwords([f"Ostfriese{end}" * 1000], kind=kind, vocab_size=290)
    (ids,) = tokenizer.encode(["Ostfriese"])
    assert [token for token in tokenizer.tokens(ids) if token.startswith("<0x")] == []


@each_kind
def test_tokenizer_survives_bytes_and_pickling(tokenizer: SubwordTokenizer) -> None:
    lines = sample_lines("en")[:20]
    assert SubwordTokenizer(tokenizer.to_bytes()).encode(lines) == tokenizer.encode(lines)
    assert pickle.loads(pickle.dumps(tokenizer)).encode(lines) == tokenizer.encode(lines)


@pytest.mark.parametrize(
    "model", [b"", b"hello world", b"\x00" * 100], ids=["empty", "text", "zeros"]
)
def test_damaged_model_is_refused(model: bytes) -> None:
    with pytest.raises(DataError, match="model"):
        SubwordTokenizer(model)
