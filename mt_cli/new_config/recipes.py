"""Which vocabulary, model and training suit a corpus of some size: rules of thumb with reasons."""

import math
from dataclasses import asdict, dataclass

from mt_cli.config.schema import Config, ModelConfig, TrainingConfig
from mt_cli.new_config.corpus_size import CorpusSize, TokenCount

BYTES_PER_TOKEN = 3
"""About, before a vocabulary is learned. Chinese and Japanese letters have three bytes each."""
SPECIAL_ENTRIES = 260
"""Bytes and special symbols, which every subword vocabulary has."""
MIN_MERGES = 100
MIN_TOKENS_PER_BATCH = 256
MIN_UPDATES_PER_EPOCH = 8
"""Of a small corpus, so that its epochs differ."""
NUM_VALIDATIONS = 20
"""In a training: enough to see how it goes, and few enough to cost little."""
FINE_TUNING = 0.25
"""Share of the updates, and of the learning rate, that a trained model gets on further data."""

Tables = dict[str, dict[str, object]]
"""Keys and values by section."""


@dataclass(frozen=True)
class Recipe:
    """Keys for corpora of up to `max_tokens`, both sides together."""

    max_tokens: float
    vocab_size: int
    d_model: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    d_ff: int
    dropout: float
    tokens_per_batch: int
    peak_lr: float
    num_updates: int
    """Updates after which such a model has mostly learnt what there is."""


# The third row is configs/multi30k-strong.toml, the last the base model of Vaswani et al. (2017).
# Few pairs want few subwords (Sennrich and Zhang 2019), each of which must occur often enough to be
# learnt, and much dropout (measured: docs/experiments.md).
RECIPES = (
    Recipe(60_000, 800, 128, 4, 2, 2, 512, 0.3, 1024, 3e-3, 1_500),
    Recipe(400_000, 1_000, 128, 4, 2, 2, 512, 0.3, 2048, 3e-3, 2_700),
    Recipe(3_000_000, 8_000, 192, 6, 4, 4, 512, 0.3, 2048, 2.5e-3, 7_000),
    Recipe(30_000_000, 16_000, 256, 8, 5, 5, 1024, 0.3, 4096, 1.5e-3, 18_000),
    Recipe(math.inf, 32_000, 512, 8, 6, 6, 2048, 0.1, 8192, 7e-4, 100_000),
)


def recipe_for(size: CorpusSize) -> Recipe:
    """The recipe for a corpus of a size."""
    num_tokens = size.num_bytes // BYTES_PER_TOKEN
    return next(recipe for recipe in RECIPES if num_tokens <= recipe.max_tokens)


def model_tables(size: CorpusSize, recipe: Recipe, parent: Config | None = None) -> Tables:
    """Keys of [tokenizer] and [model] for a new model, or those that a `parent`'s weights fix."""
    if parent is not None:
        return {
            "tokenizer": parent.tokenizer.model_dump(mode="json", exclude_none=True),
            "model": parent.model.model_dump(mode="json", exclude_none=True),
        }
    # No more entries than the corpus has words, and enough to spell them.
    spelling = SPECIAL_ENTRIES + size.num_letters
    vocab_size = max(spelling + MIN_MERGES, min(recipe.vocab_size, spelling + size.num_words))
    model = {key: value for key, value in asdict(recipe).items() if key in ModelConfig.model_fields}
    return {"tokenizer": {"vocab_size": vocab_size}, "model": model}


def training_table(
    recipe: Recipe, count: TokenCount, parent: Config | None = None
) -> dict[str, object]:
    """Keys of [training] for pairs with so many tokens, or to go on from `parent`'s weights."""
    num_updates = recipe.num_updates
    peak_lr = recipe.peak_lr
    if parent is not None:
        num_updates = round(num_updates * FINE_TUNING)
        peak_lr = parent.training.peak_lr * FINE_TUNING
    # A multiple of 64 that makes enough batches of a small corpus.
    tokens_per_batch = count.num_tokens // 2 // MIN_UPDATES_PER_EPOCH // 64 * 64
    tokens_per_batch = max(MIN_TOKENS_PER_BATCH, min(recipe.tokens_per_batch, tokens_per_batch))
    per_epoch = count.updates(tokens_per_batch)
    max_epochs = max(3, math.ceil(num_updates / per_epoch))
    total = max_epochs * per_epoch
    return {
        "max_epochs": max_epochs,
        "tokens_per_batch": tokens_per_batch,
        "peak_lr": float(f"{peak_lr:.2g}"),
        "validate_every": max(50, total // NUM_VALIDATIONS // 10 * 10),
        "log_every": min(TrainingConfig().log_every, max(10, total // 100)),
    }
