"""Which vocabulary, model and training suit a corpus of some size.

Rules of thumb, each with its reason; knows sizes, never files.
"""

from dataclasses import dataclass

from mt_cli.config import Config, ModelConfig, TokenizerConfig, TrainingConfig
from mt_cli.stages.configure.corpus_size import CorpusSize

Tables = dict[str, dict[str, object]]
"""Keys and values by section."""


@dataclass(frozen=True)
class Recipe:
    """Keys for corpora of up to `most_tokens`, both sides together."""

    most_tokens: float
    vocab_size: int
    d_model: int
    num_heads: int
    num_layers: int
    d_ff: int
    dropout: float
    tokens_per_batch: int
    peak_lr: float
    num_updates: int
    """Updates after which such a model has mostly learnt what there is."""


# The second row is configs/sample.toml, with more updates, and the third configs/multi30k-strong.toml, whose
# scores were measured. The last is the base model of Vaswani et al. (2017). Few pairs want few subwords
# (Sennrich and Zhang 2019): each must occur often enough to be learnt.
RECIPES = (
    Recipe(60_000, 800, 128, 4, 2, 512, 0.1, 1024, 3e-3, 1_000),
    Recipe(400_000, 1_000, 128, 4, 2, 512, 0.1, 2048, 3e-3, 2_000),
    Recipe(3_000_000, 8_000, 192, 6, 4, 512, 0.3, 2048, 2.5e-3, 7_000),
    Recipe(30_000_000, 16_000, 256, 8, 5, 1024, 0.3, 4096, 1.5e-3, 18_000),
    Recipe(float("inf"), 32_000, 512, 8, 6, 2048, 0.1, 8192, 7e-4, 100_000),
)
SPARE_ENTRIES = 260
"""Bytes and special symbols, which every subword vocabulary has."""
FEWEST_MERGES = 100
FEWEST_TOKENS_PER_BATCH = 256
UPDATES_PER_EPOCH = 8
"""At least so many batches make an epoch of a small corpus, so that they differ."""
VALIDATIONS = 20
"""So many are made in a training: enough to see how it goes, and few enough to cost little."""
FINE_TUNING = 0.25
"""Share of the updates, and of the learning rate, that a trained model gets on further data."""


def suited_to(size: CorpusSize) -> Tables:
    """Keys of [tokenizer], [model] and [training] for a new model."""
    recipe = _recipe(size)
    return {
        "tokenizer": {"vocab_size": _vocab_size(recipe, size)},
        "model": {
            "d_model": recipe.d_model,
            "num_heads": recipe.num_heads,
            "encoder_layers": recipe.num_layers,
            "decoder_layers": recipe.num_layers,
            "d_ff": recipe.d_ff,
            "dropout": recipe.dropout,
        },
        "training": _training(recipe, size, num_updates=recipe.num_updates, peak_lr=recipe.peak_lr),
    }


def suited_to_fine_tuning(size: CorpusSize, parent: Config) -> Tables:
    """The sections of `parent` that its weights fix, and keys of [training] to go on from them."""
    recipe = _recipe(size)
    return {
        "tokenizer": _given(parent.tokenizer),
        "model": _given(parent.model),
        "training": _training(
            recipe,
            size,
            num_updates=round(recipe.num_updates * FINE_TUNING),
            peak_lr=parent.training.peak_lr * FINE_TUNING,
        ),
    }


def updates_per_epoch(num_tokens: float, *, tokens_per_batch: int, accumulation: int = 1) -> int:
    """About as many updates as an epoch of `num_tokens` of both sides takes."""
    return max(1, round(num_tokens / 2 / tokens_per_batch / accumulation))


def _recipe(size: CorpusSize) -> Recipe:
    return next(recipe for recipe in RECIPES if size.num_tokens <= recipe.most_tokens)


def _vocab_size(recipe: Recipe, size: CorpusSize) -> int:
    """No more than the corpus has words, and enough to spell them."""
    letters = SPARE_ENTRIES + size.num_letters
    return max(letters + FEWEST_MERGES, min(recipe.vocab_size, letters + size.num_words))


def _training(recipe: Recipe, size: CorpusSize, *, num_updates: int, peak_lr: float) -> dict[str, object]:
    of_epoch = size.num_tokens // 2 // UPDATES_PER_EPOCH // 64 * 64
    tokens_per_batch = max(FEWEST_TOKENS_PER_BATCH, min(recipe.tokens_per_batch, of_epoch))
    per_epoch = updates_per_epoch(size.num_tokens, tokens_per_batch=tokens_per_batch)
    max_epochs = max(3, -(-num_updates // per_epoch))
    defaults = TrainingConfig()
    return {
        "max_epochs": max_epochs,
        "tokens_per_batch": tokens_per_batch,
        "peak_lr": float(f"{peak_lr:.2g}"),
        "warmup_steps": defaults.warmup_steps,
        "validate_every": max(50, max_epochs * per_epoch // VALIDATIONS // 10 * 10),
        "log_every": min(defaults.log_every, max(10, max_epochs * per_epoch // 100)),
    }


def _given(section: TokenizerConfig | ModelConfig) -> dict[str, object]:
    return section.model_dump(mode="json", exclude_none=True)
