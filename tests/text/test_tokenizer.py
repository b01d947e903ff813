"""Tokenizers on disk: they come back as they were, and damage is named."""

import json

import pytest
from learned import learn_tokenizers

from mt_cli.config.schema import TokenizerConfig
from mt_cli.errors import DataError
from mt_cli.text.tokenizer import Tokenizers

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


def learn(name: str) -> Tokenizers:
    return learn_tokenizers(PAIRS, CONFIGS[name], src_lang="de", tgt_lang="en", lowercase=True)


each_config = pytest.mark.parametrize("name", list(CONFIGS))


@each_config
def test_tokenizers_survive_their_files(name: str) -> None:
    tokenizers = learn(name)
    again = Tokenizers.from_files(tokenizers.to_files())
    src, tgt = ["ein Hund schläft"], ["a dog sleeps"]
    assert again.src.encode(src) == tokenizers.src.encode(src)
    assert again.tgt.decode(again.tgt.encode(tgt)) == tgt
    assert again.to_files() == tokenizers.to_files()
    assert again.options.lowercase
    assert again.joint == CONFIGS[name].joint


def test_missing_model_is_named() -> None:
    files = learn("unigram").to_files()
    del files["tgt.model"]
    with pytest.raises(DataError, match=r"tgt.model: missing; found src.model, tokenizer.json"):
        Tokenizers.from_files(files)


def test_damaged_model_is_named() -> None:
    files = learn("joint bpe").to_files() | {"joint.model": b"x" * 50}
    with pytest.raises(DataError, match=r"joint.model: the SentencePiece model is damaged"):
        Tokenizers.from_files(files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, r"tokenizer.json: format: .*another version"),
        ({"kind": "magic"}, r"tokenizer.json: kind: "),
        ({"extra": 1}, r"tokenizer.json: extra: "),
        (
            {"src_lang": "de.stop_words"},
            r"tokenizer.json: src_lang: ",
        ),  # a module that spaCy would import
        ({"tgt_lang": "../x"}, r"tokenizer.json: tgt_lang: "),
        ({"tgt_lang": ""}, r"tokenizer.json: tgt_lang: "),
    ],
)
def test_description_of_another_kind_is_refused(change: dict[str, object], message: str) -> None:
    files = learn("joint words").to_files()
    files["tokenizer.json"] = json.dumps(json.loads(files["tokenizer.json"]) | change).encode()
    with pytest.raises(DataError, match=message):
        Tokenizers.from_files(files)
