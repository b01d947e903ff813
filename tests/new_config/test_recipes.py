"""Keys by the size of the corpus: few pairs get many passes, many pairs a large model."""

import math

import pytest

from mt_cli.config.load import parse_config
from mt_cli.config.schema import Config
from mt_cli.new_config.new_config import (
    CorpusSize,
    TokenCount,
    model_tables,
    recipe_for,
    training_table,
)

SIZES = (100, 775, 5_000, 29_000, 160_000, 4_500_000)


def size_of(num_pairs: int) -> CorpusSize:
    """A corpus of sentences of 50 bytes a side."""
    num_words = min(50_000, num_pairs)
    return CorpusSize(num_pairs, 100 * num_pairs, num_words, num_letters=70, sample=[])


def count_of(num_pairs: int) -> TokenCount:
    """The same in tokens: 16 a side, beside `</s>`."""
    return TokenCount(num_pairs, 32 * num_pairs, 17 * num_pairs, vocab_size=1000)


def config_for(num_pairs: int, parent: Config | None = None) -> Config:
    size = size_of(num_pairs)
    recipe = recipe_for(size)
    training = training_table(recipe, count_of(num_pairs), parent)
    return parse_config({**model_tables(size, recipe, parent), "training": training})


@pytest.mark.parametrize("num_pairs", SIZES)
def test_every_corpus_gets_enough_updates(num_pairs: int) -> None:
    training = config_for(num_pairs).training
    updates = count_of(num_pairs).updates(training.tokens_per_batch) * training.max_epochs
    assert updates >= 1000
    assert training.num_warmup_steps(updates) < updates / 2


def test_larger_corpora_get_larger_models_and_fewer_passes() -> None:
    configs = [config_for(num_pairs) for num_pairs in SIZES]
    sizes = [
        (c.tokenizer.vocab_size, c.model.d_model, c.training.tokens_per_batch) for c in configs
    ]
    assert sizes == sorted(sizes)
    epochs = [c.training.max_epochs for c in configs]
    assert epochs == sorted(epochs, reverse=True)


def test_fine_tuning_keeps_the_model_and_lowers_the_rate() -> None:
    parent = parse_config({"model": {"d_model": 64, "dropout": 0.3}, "training": {"peak_lr": 2e-3}})
    suited = config_for(775, parent)
    assert (suited.model, suited.tokenizer) == (parent.model, parent.tokenizer)
    assert suited.training.peak_lr == 5e-4


def test_accumulation_makes_updates_of_several_batches() -> None:
    count = count_of(10_000)
    assert count.updates(1000, 4) == math.ceil(count.updates(4000))
    assert count_of(1).updates(10**6) == 1
