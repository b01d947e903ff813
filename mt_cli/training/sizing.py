"""Which vocabulary, model and training suit a corpus of some size, and what will probably not work.

Rules of thumb, each with its reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mt_cli.config.schema import Config, TrainingConfig
from mt_cli.data.corpora import RawPair
from mt_cli.data.prepared import EncodedSplit
from mt_cli.text.normalize import decode_line, normalize
from mt_cli.text.tokenizer import Tokenizers

BYTES_PER_TOKEN = 3
"""Measured, with a batch's padding: 2.3 for the few subwords of 675 pairs, 3.7 for Multi30k's 8,000. Chinese
and Japanese letters have three each."""
MOST_WORDS = 50_000
"""Distinct words that are counted; more make no difference to any key, and take memory."""


@dataclass(frozen=True)
class CorpusSize:
    """The size of some training pairs with text on both sides."""

    num_pairs: int
    num_bytes: int
    """Of both sides, normalised, in UTF-8."""
    num_words: int
    """Distinct words of both sides, `MOST_WORDS` at most."""
    num_letters: int
    """Distinct characters of both sides."""

    @property
    def num_tokens(self) -> int:
        """About as many subwords as both sides have."""
        return self.num_bytes // BYTES_PER_TOKEN


def measure(pairs: Iterable[RawPair]) -> CorpusSize:
    """Read `pairs` once and count."""
    num_pairs = num_bytes = 0
    words: set[str] = set()
    letters: set[str] = set()
    for pair in pairs:
        src, tgt = (normalize(decode_line(raw), lowercase=False) for raw in pair)
        if src and tgt:
            num_pairs += 1
            num_bytes += len(src.encode()) + len(tgt.encode())
            letters.update(src, tgt)
            if len(words) < MOST_WORDS:
                words.update(src.split(), tgt.split())
    return CorpusSize(num_pairs, num_bytes, min(len(words), MOST_WORDS), len(letters - {" "}))


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


def suited_to(size: CorpusSize, parent: Config | None = None) -> Tables:
    """Keys of [tokenizer], [model] and [training] for a new model, or to go on from `parent`'s weights."""
    recipe = next(recipe for recipe in RECIPES if size.num_tokens <= recipe.most_tokens)
    if parent is not None:  # whose weights fix the rest
        return {
            "tokenizer": parent.tokenizer.model_dump(mode="json", exclude_none=True),
            "model": parent.model.model_dump(mode="json", exclude_none=True),
            "training": _training(
                recipe,
                size,
                num_updates=round(recipe.num_updates * FINE_TUNING),
                peak_lr=parent.training.peak_lr * FINE_TUNING,
            ),
        }
    # No more entries than the corpus has words, and enough to spell them.
    letters = SPARE_ENTRIES + size.num_letters
    vocab_size = max(letters + FEWEST_MERGES, min(recipe.vocab_size, letters + size.num_words))
    return {
        "tokenizer": {"vocab_size": vocab_size},
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


def updates_per_epoch(num_tokens: float, *, tokens_per_batch: int, accumulation: int = 1) -> int:
    """About as many updates as an epoch of `num_tokens` of both sides takes."""
    return max(1, round(num_tokens / 2 / tokens_per_batch / accumulation))


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


FEW_UPDATES = 300
"""Fewer are seldom enough, even for a few hundred pairs."""
ENOUGH_UPDATES = 1000
"""What is proposed in their place."""
FEWEST_TOKENS_AN_ENTRY = 10
"""An entry of the vocabulary that occurs less often stays close to its random start."""
BYTES = 256
"""Entries of a subword vocabulary that are single bytes, which most text never needs."""
POOR_BLEU = 1.0
ALIKE = 0.1
"""Translations are nearly all alike if this share of them differs, of sources that differ."""
FEWEST_TO_COMPARE = 10


@dataclass(frozen=True)
class Plan:
    """The size of a training."""

    num_pairs: int
    num_tokens: int
    """Tokens of all training pairs, both sides."""
    vocab_size: int
    """Entries, of both sides' vocabularies if there are two."""
    total_steps: int
    steps_per_epoch: int


def plan_of(config: Config, split: EncodedSplit, tokenizers: Tokenizers, *, total_steps: int) -> Plan:
    """The size of `total_steps` updates on the training pairs `split`."""
    src_size, tgt_size = tokenizers.src.vocab_size, tokenizers.tgt.vocab_size
    return Plan(
        num_pairs=len(split),
        num_tokens=len(split.src.ids) + len(split.tgt.ids),
        vocab_size=src_size if tokenizers.joint else src_size + tgt_size,
        total_steps=total_steps,
        steps_per_epoch=max(1, round(total_steps / config.training.max_epochs)),
    )


def before_training(config: Config, plan: Plan) -> Iterator[str]:
    """What will probably keep `plan` from working, a sentence each."""
    training, pairs = config.training, f"{plan.num_pairs:,} pairs"
    if training.max_steps is not None and training.max_steps <= plan.total_steps:
        pass  # a short training was asked for
    elif plan.total_steps < FEW_UPDATES:
        tokens = max(256, min(training.tokens_per_batch, plan.num_tokens // 2 // 15 // 64 * 64))
        per_epoch = max(1, plan.steps_per_epoch * training.tokens_per_batch // tokens)
        epochs = max(training.max_epochs, -(-ENOUGH_UPDATES // per_epoch))
        yield (
            f"training makes only {plan.total_steps} updates, {plan.steps_per_epoch} an epoch, from {pairs}; "
            f"most models need a thousand or more: set training.tokens_per_batch = {tokens} and "
            f"training.max_epochs = {epochs}, or let mt-cli config new choose"
        )
    elif plan.steps_per_epoch == 1:
        update, cure = "a batch", "smaller batches learn"
        if training.accumulation > 1:
            update, cure = f"an update of {training.accumulation} batches", "a smaller accumulation learns"
        yield (
            f"{update} of training.tokens_per_batch = {training.tokens_per_batch} holds the whole corpus of "
            f"{pairs}; {cure} in fewer epochs"
        )
    warmup_steps = training.num_warmup_steps(plan.total_steps)
    if warmup_steps >= plan.total_steps:
        yield (
            f"the warm-up of {warmup_steps} updates is not over when training ends after "
            f"{plan.total_steps}: the learning rate never gets to training.peak_lr; set "
            "training.warmup_steps = 0.1, a tenth of them"
        )
    is_words = config.tokenizer.kind == "spacy"
    spare = 0 if is_words else BYTES * (1 if config.tokenizer.joint else 2)
    learned = max(1, plan.vocab_size - spare)
    if plan.num_tokens < learned * FEWEST_TOKENS_AN_ENTRY:
        yield (
            f"the vocabulary of {plan.vocab_size:,} entries is large for {plan.num_pairs:,} training pairs: "
            f"each entry occurs {plan.num_tokens / learned:.0f} times on average; "
            f"{'raise tokenizer.min_freq' if is_words else 'lower tokenizer.vocab_size'}, then prepare again"
        )


def after_training(bleu: float, *, hyps: Sequence[str], sources: Sequence[str]) -> str | None:
    """What the translations of the validation split say of a model, if it has failed."""
    num_hyps, num_sources = len(set(hyps)), len(set(sources))
    if num_sources >= FEWEST_TO_COMPARE and num_hyps <= max(1, num_sources * ALIKE):
        found = (
            f"the model does not read its source: {num_sources} different sources got only {num_hyps} "
            f"different translations, {bleu:.2f} BLEU"
        )
    elif bleu < POOR_BLEU:
        found = f"the model has not learnt to translate: {bleu:.2f} BLEU on val"
    else:
        return None
    return (
        f"{found}; look at the loss in train.log; if it was still falling, train longer "
        "(training.max_epochs), if it never fell, check that the two files are aligned line by line, and try "
        "a smaller training.peak_lr; mt-cli config new chooses keys that suit a corpus"
    )
