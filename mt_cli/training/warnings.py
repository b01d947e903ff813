"""Warnings about a training: what will probably not work, and what has not."""

import math
from collections.abc import Iterator, Sequence

from mt_cli.config.schema import Config

FEW_UPDATES = 300
"""Fewer are seldom enough, even for a few hundred pairs."""
ENOUGH_UPDATES = 1000
"""What is proposed in their place."""
BATCHES_PER_EPOCH = 15
"""In what is proposed."""
MIN_TOKENS_PER_BATCH = 256
MIN_TOKENS_PER_PROCESS = 2048
"""Tokens of a batch that each of several processes needs to be kept busy."""
MIN_TOKENS_PER_ENTRY = 10
"""An entry of the vocabulary that occurs less often stays close to its random start."""
NUM_BYTES = 256
"""Entries of a subword vocabulary that are single bytes, which most text never needs."""
POOR_BLEU = 1.0
MIN_SHARE_OF_DIFFERENT = 0.1
"""Fewer different translations, of sources that differ, mean that the source is not read."""
MIN_SOURCES = 10
"""With fewer, that says nothing."""
OVERFITTED = 0.1
"""Nats per token by which the loss on val has risen again where the model is said to overfit."""


def warnings_before(
    config: Config,
    *,
    num_pairs: int,
    num_tokens: int,
    vocab_size: int,
    total_steps: int,
    num_processes: int = 1,
) -> Iterator[str]:
    """What will probably keep a training of `total_steps` updates from working well, one by one.

    Tokens and vocabulary entries are those of both sides.
    """
    training = config.training
    steps_per_epoch = max(1, round(total_steps / training.max_epochs))
    is_short_on_purpose = (training.max_steps or math.inf) <= total_steps
    if is_short_on_purpose or training.init_from is not None:
        pass
    elif total_steps < FEW_UPDATES:
        # A multiple of 64 that cuts the corpus into about `BATCHES_PER_EPOCH` batches.
        tokens = num_tokens // 2 // BATCHES_PER_EPOCH // 64 * 64
        tokens = max(MIN_TOKENS_PER_BATCH, min(training.tokens_per_batch, tokens))
        per_epoch = max(1, steps_per_epoch * training.tokens_per_batch // tokens)
        epochs = max(training.max_epochs, math.ceil(ENOUGH_UPDATES / per_epoch))
        yield (
            f"training makes only {total_steps} updates, {steps_per_epoch} an epoch, from "
            f"{num_pairs:,} pairs; most models need a thousand or more: set "
            f"training.tokens_per_batch = {tokens} and training.max_epochs = {epochs}, or let "
            "mt-cli config new choose"
        )
    elif steps_per_epoch == 1 and training.accumulation > 1:
        yield (
            f"training.accumulation = {training.accumulation} makes one update of the whole corpus "
            f"of {num_pairs:,} pairs; a smaller one learns in fewer epochs"
        )
    elif steps_per_epoch == 1:
        yield (
            f"a batch of training.tokens_per_batch = {training.tokens_per_batch} holds the whole "
            f"corpus of {num_pairs:,} pairs; smaller batches learn in fewer epochs"
        )
    per_process = training.tokens_per_batch // num_processes
    if num_processes > 1 and per_process < MIN_TOKENS_PER_PROCESS:
        yield (
            f"each of {num_processes} processes gets {per_process:,} tokens of a batch, too few to "
            "keep it busy; set training.tokens_per_batch = "
            f"{num_processes * MIN_TOKENS_PER_PROCESS}"
        )
    warmup_steps = training.num_warmup_steps(total_steps)
    if warmup_steps >= total_steps:
        yield (
            f"training ends after {total_steps} updates, within its warm-up of {warmup_steps}: the "
            "learning rate never reaches training.peak_lr; set training.warmup_steps = 0.1, a "
            "tenth of all updates"
        )
    if config.tokenizer.from_run is None:
        yield from _large_vocabulary(config, num_pairs, num_tokens, vocab_size)


def _large_vocabulary(
    config: Config, num_pairs: int, num_tokens: int, vocab_size: int
) -> Iterator[str]:
    is_words = config.tokenizer.kind == "spacy"
    num_bytes = 0
    if not is_words:
        num_bytes = NUM_BYTES if config.tokenizer.joint else 2 * NUM_BYTES
    num_learned = max(1, vocab_size - num_bytes)
    if num_tokens < num_learned * MIN_TOKENS_PER_ENTRY:
        cure = "raise tokenizer.min_freq" if is_words else "lower tokenizer.vocab_size"
        yield (
            f"the vocabulary of {vocab_size:,} entries is large for {num_pairs:,} training pairs: "
            f"each entry occurs {num_tokens / num_learned:.0f} times on average; {cure}, then "
            "prepare again"
        )


def warning_after(bleu: float, *, hyps: Sequence[str], sources: Sequence[str]) -> str | None:
    """What the translations of the validation split say about a model, if it has failed."""
    num_hyps = len(set(hyps))
    num_sources = len(set(sources))
    few = max(1, num_sources * MIN_SHARE_OF_DIFFERENT)
    if num_sources >= MIN_SOURCES and num_hyps <= few:
        found = (
            f"the model does not read its source: {num_sources} different sources got only "
            f"{num_hyps} different translations, {bleu:.2f} BLEU"
        )
    elif bleu < POOR_BLEU:
        found = f"the model has not learnt to translate: {bleu:.2f} BLEU on val"
    else:
        return None
    return (
        f"{found}; look at the loss in train.log: if it was still falling, train longer "
        "(training.max_epochs); if it never fell, check that the two files are aligned line by "
        "line, and try a smaller training.peak_lr; mt-cli config new chooses keys that suit a "
        "corpus"
    )


def warning_of_risen_loss(
    val_nll: Sequence[tuple[int, float]], train_nll: Sequence[tuple[int, float]]
) -> str | None:
    """Say if the loss on val has risen again, and why; both are (step, nats per token) in order."""
    lowest_step, lowest = min(val_nll, key=lambda each: each[1])
    _, last = val_nll[-1]
    if last <= lowest + OVERFITTED:
        return None
    rise = f"its loss on val has risen from {lowest:.3f} to {last:.3f}"
    before = [nll for step, nll in train_nll if step <= lowest_step]
    if before and train_nll[-1][1] > before[-1] + OVERFITTED:
        return f"the model got worse: {rise}; its loss in training rose too: lower training.peak_lr"
    return (
        f"the model overfits: {rise}; raise model.dropout, train on more pairs (data.more), or for "
        "fewer epochs (training.max_epochs)"
    )
