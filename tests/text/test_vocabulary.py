"""Vocabularies: the order of their entries, and their special symbols."""

from collections import Counter

import pytest

from mt_cli.errors import DataError
from mt_cli.text.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from mt_cli.text.vocabulary import Vocabulary, learn_vocabulary


def test_specials_have_their_ids() -> None:
    vocabulary = learn_vocabulary(Counter("abc"), max_size=10, min_freq=1)
    assert vocabulary.tokens[:4] == SPECIALS
    assert [vocabulary.tokens[i] for i in (PAD_ID, UNK_ID, BOS_ID, EOS_ID)] == [
        "<pad>",
        "<unk>",
        "<s>",
        "</s>",
    ]


def test_tokens_are_ordered_by_frequency_then_alphabet() -> None:
    vocabulary = learn_vocabulary(Counter({"b": 2, "a": 2, "c": 3}), max_size=10, min_freq=1)
    assert vocabulary.tokens[4:] == ("c", "a", "b")


def test_rare_tokens_are_left_out() -> None:
    assert learn_vocabulary(Counter("aab"), max_size=10, min_freq=2).tokens[4:] == ("a",)


def test_max_size_counts_the_specials() -> None:
    assert len(learn_vocabulary(Counter("aabbcd"), max_size=6, min_freq=1)) == 6


def test_asking_for_an_unknown_token_does_not_add_it() -> None:
    vocabulary = learn_vocabulary(Counter("a"), max_size=10, min_freq=1)
    assert [vocabulary.id_of("neu"), vocabulary.id_of("neu")] == [UNK_ID, UNK_ID]
    assert len(vocabulary) == 5


def test_repeated_token_is_named() -> None:
    with pytest.raises(DataError, match="'x' is there twice"):
        Vocabulary([*SPECIALS, "x", "y", "x"])
