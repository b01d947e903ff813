"""Tokenizers of both sides: what is learned from which text, and that they survive their files."""

import json
from collections import Counter

import pytest
from learned import learn_tokenizers

from mt_cli.config.schema import TokenizerConfig
from mt_cli.errors import DataError
from mt_cli.text.tokenizers import Tokenizers, sampled
from mt_cli.text.words import WordTokenizer

PAIRS = [("ein Hund bellt", "a dog barks"), ("ein Hund schläft", "a dog sleeps")] * 5
CONFIGS = {
    "joint words": TokenizerConfig(kind="spacy", joint=True),
    "words": TokenizerConfig(kind="spacy", joint=False),
    "joint bpe": TokenizerConfig(kind="bpe", vocab_size=290, joint=True),
    "unigram": TokenizerConfig(kind="unigram", vocab_size=280, tgt_vocab_size=275, joint=False),
}
FILES = {
    "joint words": {"tokenizer.json", "vocab.joint.json"},
    "words": {"tokenizer.json", "vocab.src.json", "vocab.tgt.json"},
    "joint bpe": {"tokenizer.json", "joint.model"},
    "unigram": {"tokenizer.json", "src.model", "tgt.model"},
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


def test_joint_words_count_both_sides() -> None:
    config = TokenizerConfig(kind="spacy", joint=True, min_freq=2)
    tokenizers = learn([("in Berlin", "in Berlin")], config)
    assert words(tokenizers.src) == words(tokenizers.tgt) == ("Berlin", "in")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_subwords_of_a_side_are_learned_from_that_side(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind, "joint": False, "vocab_size": 300})
    tokenizers = learn([("äöü ß", "xyz q")] * 3, config)
    src, tgt = (" ".join(side.entries) for side in (tokenizers.src, tokenizers.tgt))
    assert ("ä" in src, "ä" in tgt) == (True, False)
    assert ("z" in src, "z" in tgt) == (False, True)


def test_a_vocabulary_without_a_word_is_refused_with_the_key() -> None:
    with pytest.raises(DataError, match=r"tokenizer\.min_freq = 3"):
        learn(PAIRS[:2], TokenizerConfig(kind="spacy", joint=False, min_freq=3))


def test_sample_of_a_long_stream_is_even() -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        sample = sampled(((str(i), "") for i in range(20)), 5, seed=seed)
        assert len(sample) == 5
        seen.update(src for src, _ in sample)
    # Each of 20 is expected 100 times, with a deviation of 8.7.
    assert len(seen) == 20
    assert all(60 < count < 140 for count in seen.values())


def test_sample_depends_on_its_seed_alone() -> None:
    first, second = (sampled(((str(i), str(i)) for i in range(100)), 3, seed=7) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", CONFIGS)
def test_tokenizers_survive_their_files(name: str) -> None:
    tokenizers = learn(PAIRS, CONFIGS[name], lowercase=True)
    files = tokenizers.to_files()
    assert set(files) == FILES[name]
    again = Tokenizers.from_files(files)
    src, tgt = ["ein Hund schläft"], ["a dog sleeps"]
    assert again.src.encode(src) == tokenizers.src.encode(src)
    assert again.tgt.decode(again.tgt.encode(tgt)) == tgt
    assert again.to_files() == files
    assert again.options.lowercase
    assert again.joint == CONFIGS[name].joint


def test_missing_model_is_named() -> None:
    files = learn(PAIRS, CONFIGS["unigram"]).to_files()
    del files["tgt.model"]
    with pytest.raises(DataError, match=r"tgt\.model"):
        Tokenizers.from_files(files)


def test_damaged_model_is_named() -> None:
    files = learn(PAIRS, CONFIGS["joint bpe"]).to_files() | {"joint.model": b"x" * 50}
    with pytest.raises(DataError, match=r"joint\.model"):
        Tokenizers.from_files(files)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("kind", "magic"),
        ("extra", 1),
        ("src_lang", "de.stop_words"),  # a module that spaCy would import
        ("tgt_lang", "../x"),
        ("tgt_lang", ""),
    ],
)
def test_description_of_another_kind_is_refused_with_its_key(key: str, value: object) -> None:
    files = learn(PAIRS, CONFIGS["joint words"]).to_files()
    description = json.loads(files["tokenizer.json"]) | {key: value}
    files["tokenizer.json"] = json.dumps(description).encode()
    with pytest.raises(DataError, match=rf"tokenizer\.json: {key}: "):
        Tokenizers.from_files(files)
