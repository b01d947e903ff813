"""Encoding: which pairs are kept, which are dropped, and for which reason."""

from mt_cli.data.prepare import encode_pairs
from mt_cli.data.prepared import Sentences
from mt_cli.text import SPECIALS
from mt_cli.text.tokenizer import TextOptions, Tokenizers
from mt_cli.text.words import WordTokenizer


def tokenizers(*, lowercase: bool = False) -> Tokenizers:
    return Tokenizers(
        WordTokenizer("de", [*SPECIALS, "ein", "Hund", "hund"]),
        WordTokenizer("en", [*SPECIALS, "a", "dog", "big"]),
        kind="spacy",
        joint=False,
        options=TextOptions("de", "en", lowercase),
    )


def lists(sequences: Sentences) -> list[list[int]]:
    return [sequences[i].tolist() for i in range(len(sequences))]


RAW = [
    (b"ein Hund\n", b"a dog\n"),
    (b"\xe2\x80\x8b \n", b"a dog\n"),
    (b"ein\n", b"\n"),
    (b"ein  Hund \r\n", b"a big dog\n"),
    (b"ein Hund ein Hund\n", b"a dog\n"),
]


def test_every_line_is_kept_without_a_limit() -> None:
    encoded = encode_pairs(RAW, tokenizers=tokenizers(), max_len=None)
    assert lists(encoded.split.src) == [[4, 5], [], [4], [4, 5], [4, 5, 4, 5]]
    assert lists(encoded.split.tgt) == [[4, 5], [4, 5], [], [4, 6, 5], [4, 5]]
    assert encoded.too_long == 0


def test_pairs_with_a_side_that_is_too_long_are_dropped() -> None:
    encoded = encode_pairs(RAW, tokenizers=tokenizers(), max_len=3)
    assert encoded.too_long == 1
    assert lists(encoded.split.src) == [[4, 5], [], [4], [4, 5]]


def test_text_is_lowercased_as_the_tokenizers_were_learned() -> None:
    encoded = encode_pairs(RAW[:1], tokenizers=tokenizers(lowercase=True), max_len=None)
    assert encoded.split.src[0].tolist() == [4, 6]
