"""What a person should be told before the first update and after the last: what cannot work, and what to do.

Numbers in, sentences out; knows no files and no model.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from mt_cli.config import Config
from mt_cli.data.split import EncodedSplit
from mt_cli.text.tokenizer import Tokenizers

log = logging.getLogger(__name__)

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


def before_training(config: Config, plan: Plan) -> list[str]:
    """What will probably keep `plan` from working, a sentence each."""
    return [*_of_the_updates(config, plan), *_of_the_warmup(config, plan), *_of_the_vocabulary(config, plan)]


def after_training(bleu: float, *, hyps: Sequence[str], sources: Sequence[str]) -> list[str]:
    """What the translations of the validation split say of a model, if it has failed."""
    what_next = (
        "look at the loss in train.log; if it was still falling, train longer (training.max_epochs), "
        "if it never fell, check that the two files are aligned line by line, and try a smaller "
        "training.peak_lr; mt-cli config new chooses keys that suit a corpus"
    )
    num_hyps, num_sources = len(set(hyps)), len(set(sources))
    if num_sources >= FEWEST_TO_COMPARE and num_hyps <= max(1, num_sources * ALIKE):
        alike = f"{num_sources} different sources got only {num_hyps} different translations"
        return [f"the model does not read its source: {alike}, {bleu:.2f} BLEU; {what_next}"]
    if bleu < POOR_BLEU:
        return [f"the model has not learnt to translate: {bleu:.2f} BLEU on val; {what_next}"]
    return []


def log_warnings(sentences: Sequence[str]) -> None:
    """Log each sentence as a warning."""
    for sentence in sentences:
        log.warning("%s", sentence)


def _of_the_updates(config: Config, plan: Plan) -> list[str]:
    training = config.training
    if training.max_steps is not None and training.max_steps <= plan.total_steps:
        return []  # a short training was asked for
    if plan.total_steps < FEW_UPDATES:
        tokens = max(256, min(training.tokens_per_batch, plan.num_tokens // 2 // 15 // 64 * 64))
        per_epoch = max(1, plan.steps_per_epoch * training.tokens_per_batch // tokens)
        epochs = max(training.max_epochs, -(-ENOUGH_UPDATES // per_epoch))
        return [
            f"training makes only {plan.total_steps} updates, {plan.steps_per_epoch} an epoch, from "
            f"{plan.num_pairs:,} pairs; most models need a thousand or more: set training.tokens_per_batch = "
            f"{tokens} and training.max_epochs = {epochs}, or let mt-cli config new choose"
        ]
    if plan.steps_per_epoch == 1:
        update, cure = "a batch", "smaller batches learn"
        if training.accumulation > 1:
            update, cure = f"an update of {training.accumulation} batches", "a smaller accumulation learns"
        return [
            f"{update} of training.tokens_per_batch = {training.tokens_per_batch} holds the whole corpus of "
            f"{plan.num_pairs:,} pairs; {cure} in fewer epochs"
        ]
    return []


def _of_the_warmup(config: Config, plan: Plan) -> list[str]:
    warmup_steps = config.training.num_warmup_steps(plan.total_steps)
    if warmup_steps < plan.total_steps:
        return []
    return [
        f"the warm-up of {warmup_steps} updates is not over when training ends after {plan.total_steps}: the "
        "learning rate never gets to training.peak_lr; set training.warmup_steps = 0.1, a tenth of them"
    ]


def _of_the_vocabulary(config: Config, plan: Plan) -> list[str]:
    is_words = config.tokenizer.kind == "spacy"
    spare = 0 if is_words else BYTES * (1 if config.tokenizer.joint else 2)
    learned = max(1, plan.vocab_size - spare)
    if plan.num_tokens >= learned * FEWEST_TOKENS_AN_ENTRY:
        return []
    cure = "raise tokenizer.min_freq" if is_words else "lower tokenizer.vocab_size"
    return [
        f"the vocabulary of {plan.vocab_size:,} entries is large for {plan.num_pairs:,} training pairs: each "
        f"entry occurs {plan.num_tokens / learned:.0f} times on average; {cure}, then prepare again"
    ]
