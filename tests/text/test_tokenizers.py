"""Tokenizers of both sides: what is learned from which text, and that they survive their files."""

import json

import pytest
from learned import learn_tokenizers

from mt_cli.config.schema import TokenizerConfig
from mt_cli.errors import DataError
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.text.words import WordTokenizer

PAIRS = [("ein Hund bellt", "a dog barks"), ("ein Hund schläft", "a dog sleeps")] * 5
CONFIGS = {
    "joint words": TokenizerConfig(kind="spacy", joint=True),
    "words": TokenizerConfig(kind="spacy", joint=False),
    "joint bpe": TokenizerConfig(kind="bpe", vocab_size=290, joint=True),
    "unigram": TokenizerConfig(kind="unigram", vocab_size=280, tgt_vocab_size=275, joint=False),
}


def learn(
    pairs: list[tuple[str, str]], config: TokenizerConfig, *, lowercase: bool = False
) -> Tokenizers:
    return learn_tokenizers(pairs, config, src_lang="de", tgt_lang="en", lowercase=lowercase)


def words(tokenizer: object) -> tuple[str, ...]:
    assert isinstance(tokenizer, WordTokenizer)
    return tuple(tokenizer.entries[4:])


def test_words_per_side_are_numbered_by_frequency() -> None:
    pairs = [("ein Hund", "a dog"), ("ein Ball", "a ball"), ("der Hund", "the dog")]
    tokenizers = learn(pairs, TokenizerConfig(kind="spacy", joint=False, min_freq=1))
    assert words(tokenizers.src) == ("Hund", "ein", "Ball", "der")
    assert words(tokenizers.tgt) == ("a", "dog", "ball", "the")


def test_subwords_of_a_side_are_learned_from_that_side() -> None:
    config = TokenizerConfig(kind="bpe", joint=False, vocab_size=300)
    tokenizers = learn([("äöü ß", "xyz q")] * 3, config)
    src, tgt = (" ".join(side.entries) for side in (tokenizers.src, tokenizers.tgt))
    assert ("ä" in src, "ä" in tgt) == (True, False)
    assert ("z" in src, "z" in tgt) == (False, True)


def test_a_vocabulary_without_a_word_is_refused_with_the_key() -> None:
    with pytest.raises(DataError, match=r"lower tokenizer\.min_freq"):
        learn(PAIRS[:2], TokenizerConfig(kind="spacy", joint=False, min_freq=3))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_tokenizers_survive_their_files(config: TokenizerConfig) -> None:
    tokenizers = learn(PAIRS, config, lowercase=True)
    files = tokenizers.to_files()
    again = Tokenizers.from_files(files)
    src, tgt = ["ein Hund schläft"], ["a dog sleeps"]
    assert again.src.encode(src) == tokenizers.src.encode(src)
    assert again.tgt.decode(again.tgt.encode(tgt)) == tgt
    assert again.to_files() == files
    assert again.options.lowercase
    assert again.joint == config.joint


def test_a_damaged_model_is_refused_and_a_missing_one_named() -> None:
    files = learn(PAIRS, CONFIGS["unigram"]).to_files()
    with pytest.raises(DataError):
        Tokenizers.from_files({**files, "tgt.model": b"x" * 50})
    del files["tgt.model"]
    with pytest.raises(DataError, match=r"tgt\.model"):
        Tokenizers.from_files(files)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("src_lang", "de.stop_words"),  # a module that spaCy would import
        ("tgt_lang", "../x"),
    ],
)
def test_description_of_another_kind_is_refused_with_its_key(key: str, value: object) -> None:
    files = learn(PAIRS, CONFIGS["joint words"]).to_files()
    description = json.loads(files["tokenizer.json"]) | {key: value}
    files["tokenizer.json"] = json.dumps(description).encode()
    with pytest.raises(DataError, match=rf"tokenizer\.json: .*{key}: "):
        Tokenizers.from_files(files)
