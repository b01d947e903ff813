"""Warnings about trainings that will not work, or did not."""

from collections.abc import Iterator, Sequence

from mt_cli.config.schema import Config

FEW_UPDATES = 300
"""Fewer updates are rarely enough, even for a few hundred pairs."""
POOR_BLEU = 1.0
MIN_SHARE_OF_DIFFERENT = 0.1
"""Fewer different translations than this, per different source: the model ignores the source."""
MIN_SOURCES = 10
"""With fewer sources, this check is skipped."""
OVERFITTED = 0.1
"""Rise of the loss on val, in nats per token, from which the model counts as overfitted."""
Points = Sequence[tuple[float, float]]
"""(step, nats per token), in order."""


def warnings_before(config: Config, *, num_pairs: int, total_steps: int) -> Iterator[str]:
    """Warnings about settings with which a training of `total_steps` updates will hardly work."""
    training = config.training
    is_short_on_purpose = training.max_steps is not None and training.max_steps <= total_steps
    if total_steps < FEW_UPDATES and not is_short_on_purpose and training.init_from is None:
        yield (
            f"{num_pairs:,} pairs give only {total_steps} updates, but most models need a thousand "
            "or more; lower training.tokens_per_batch and raise training.max_epochs, or let mt-cli "
            "config new choose them"
        )
    warmup_steps = training.num_warmup_steps(total_steps)
    if warmup_steps >= total_steps:
        yield (
            f"training ends after {total_steps} updates, before the warm-up of {warmup_steps} is "
            "over, so the learning rate never reaches training.peak_lr; set training.warmup_steps "
            "= 0.1, a tenth of all updates"
        )


def warning_after(bleu: float, hyps: Sequence[str], sources: Sequence[str]) -> str | None:
    """A warning if the translations of the validation split show that the model has failed."""
    num_hyps = len(set(hyps))
    num_sources = len(set(sources))
    if num_sources >= MIN_SOURCES and num_hyps <= num_sources * MIN_SHARE_OF_DIFFERENT:
        found = (
            f"the model ignores the source: {num_sources} different sources have only {num_hyps} "
            f"different translations, {bleu:.2f} BLEU"
        )
    elif bleu < POOR_BLEU:
        found = f"the model did not learn to translate: {bleu:.2f} BLEU on val"
    else:
        return None
    return (
        f"{found}; check the loss in train.log: if it was still falling, train longer "
        "(training.max_epochs); if it never fell, check that the two files align line by line, "
        "and try a lower training.peak_lr; mt-cli config new chooses settings that suit your "
        "corpus"
    )


def warning_of_risen_loss(val_nll: Points, train_nll: Points) -> str | None:
    """A warning if the loss on val rose again, with the likely reason."""
    lowest_step, lowest = min(val_nll, key=lambda each: each[1])
    _, last = val_nll[-1]
    if last <= lowest + OVERFITTED:
        return None
    rise = f"its loss on val rose from {lowest:.3f} to {last:.3f}"
    before = [nll for step, nll in train_nll if step <= lowest_step]
    if before and train_nll[-1][1] > before[-1] + OVERFITTED:
        return f"the model got worse: {rise}, and so did the training loss; lower training.peak_lr"
    return (
        f"the model overfits: {rise}; raise model.dropout, add pairs (data.more), or train for "
        "fewer epochs (training.max_epochs)"
    )
