"""Learning vocabularies, against counts by hand."""

from collections import Counter

import pytest
from learned import learn_tokenizers

from mt_cli.config.schema import TokenizerConfig
from mt_cli.errors import DataError
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from mt_cli.text.tokenizer import Tokenizers, sampled
from mt_cli.text.words import WordTokenizer, learn_vocabulary

PAIRS = [("ein Hund", "a dog"), ("ein Ball", "a ball"), ("der Hund", "the dog")]


def learn(pairs: list[tuple[str, str]], config: TokenizerConfig) -> Tokenizers:
    return learn_tokenizers(pairs, config, src_lang="de", tgt_lang="en", lowercase=False)


def words(tokenizer: object) -> tuple[str, ...]:
    assert isinstance(tokenizer, WordTokenizer)
    return tuple(tokenizer.entries[4:])


def test_words_per_side_are_numbered_by_frequency() -> None:
    tokenizers = learn(PAIRS, TokenizerConfig(kind="spacy", joint=False, min_freq=1))
    assert words(tokenizers.src) == ("Hund", "ein", "Ball", "der")
    assert words(tokenizers.tgt) == ("a", "dog", "ball", "the")


def test_joint_words_count_both_sides() -> None:
    tokenizers = learn(
        [("in Berlin", "in Berlin")], TokenizerConfig(kind="spacy", joint=True, min_freq=2)
    )
    assert words(tokenizers.src) == words(tokenizers.tgt) == ("Berlin", "in")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_subwords_of_a_side_are_learned_from_that_side(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind, "joint": False, "vocab_size": 300})
    tokenizers = learn([("äöü ß", "xyz q")] * 3, config)
    src, tgt = (" ".join(side.entries) for side in (tokenizers.src, tokenizers.tgt))
    assert "ä" in src
    assert "ä" not in tgt
    assert "z" in tgt
    assert "z" not in src


def test_a_vocabulary_without_a_word_is_refused() -> None:
    config = TokenizerConfig(kind="spacy", joint=False, min_freq=3)
    with pytest.raises(
        DataError, match=r"no word occurs tokenizer\.min_freq = 3 times in the training text"
    ):
        learn(PAIRS, config)


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


def test_specials_have_their_ids() -> None:
    vocabulary = learn_vocabulary(Counter("abc"), max_size=10, min_freq=1)
    assert vocabulary[:4] == list(SPECIALS)
    assert [vocabulary[i] for i in (PAD_ID, UNK_ID, BOS_ID, EOS_ID)] == [
        "<pad>",
        "<unk>",
        "<s>",
        "</s>",
    ]


def test_tokens_are_ordered_by_frequency_then_alphabet() -> None:
    vocabulary = learn_vocabulary(Counter({"b": 2, "a": 2, "c": 3}), max_size=10, min_freq=1)
    assert vocabulary[4:] == ["c", "a", "b"]


def test_rare_tokens_are_left_out() -> None:
    assert learn_vocabulary(Counter("aab"), max_size=10, min_freq=2)[4:] == ["a"]


def test_max_size_counts_the_specials() -> None:
    assert len(learn_vocabulary(Counter("aabbcd"), max_size=6, min_freq=1)) == 6


def test_asking_for_an_unknown_token_does_not_add_it() -> None:
    tokenizer = WordTokenizer("de", learn_vocabulary(Counter("a"), max_size=10, min_freq=1))
    assert tokenizer.encode(["neu", "neu"]) == [[UNK_ID], [UNK_ID]]
    assert tokenizer.vocab_size == len(tokenizer.entries) == 5


def test_repeated_token_is_named() -> None:
    with pytest.raises(DataError, match="'x' is there twice"):
        WordTokenizer("de", [*SPECIALS, "x", "y", "x"])
