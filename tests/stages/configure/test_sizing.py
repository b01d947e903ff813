"""Keys by the size of the corpus: few pairs get many passes, many pairs a large model."""

import pytest

from mt_cli.config.load import parse_config
from mt_cli.config.schema import Config
from mt_cli.training.new_config import CorpusSize, suited_to, updates_per_epoch


def size_of(num_pairs: int) -> CorpusSize:
    """A corpus of sentences of 50 bytes a side."""
    num_bytes = num_pairs * 100
    return CorpusSize(num_pairs, num_bytes, num_words=min(50_000, num_pairs), num_letters=70)


def config_for(num_pairs: int) -> Config:
    return parse_config({**suited_to(size_of(num_pairs))})


SIZES = (100, 775, 5_000, 29_000, 160_000, 4_500_000)


def updates(num_pairs: int) -> int:
    training = config_for(num_pairs).training
    per_epoch = updates_per_epoch(size_of(num_pairs).num_tokens, tokens_per_batch=training.tokens_per_batch)
    return per_epoch * training.max_epochs


@pytest.mark.parametrize("num_pairs", SIZES)
def test_every_corpus_gets_enough_updates(num_pairs: int) -> None:
    assert updates(num_pairs) >= 1000
    assert config_for(num_pairs).training.num_warmup_steps(updates(num_pairs)) < updates(num_pairs) / 2


def test_larger_corpora_get_larger_models_and_fewer_passes() -> None:
    configs = [config_for(num_pairs) for num_pairs in SIZES]
    sizes = [(c.tokenizer.vocab_size, c.model.d_model, c.training.tokens_per_batch) for c in configs]
    assert sizes == sorted(sizes)
    epochs = [c.training.max_epochs for c in configs]
    assert epochs == sorted(epochs, reverse=True)


def test_fine_tuning_keeps_the_model_and_lowers_the_rate() -> None:
    parent = parse_config({"model": {"d_model": 64, "dropout": 0.3}, "training": {"peak_lr": 2e-3}})
    suited = parse_config({**suited_to(size_of(775), parent)})
    assert (suited.model, suited.tokenizer) == (parent.model, parent.tokenizer)
    assert suited.training.peak_lr == 5e-4
