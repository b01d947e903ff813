"""The trainer: that it learns, what an update is, and that it resumes exactly."""

from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest
import torch
from tiny import BACKENDS, CPU, random_pairs, randomised, split_of, tiny_model
from torch import Tensor

from mt_cli.config.schema import TrainingConfig
from mt_cli.data import batching
from mt_cli.data.batching import Batch, BatchShape, pad_ids
from mt_cli.decoding.search import Rules, greedy_search
from mt_cli.model.model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID
from mt_cli.training.distributed import World
from mt_cli.training.loss import Loss, batch_loss
from mt_cli.training.optimizer import learning_rate
from mt_cli.training.trainer import StepReport, Trainer
from mt_cli.training.validator import mean_nll

Pairs = list[tuple[list[int], list[int]]]

PLAIN = TrainingConfig(
    max_epochs=1,
    tokens_per_batch=1000,
    schedule="constant",
    warmup_steps=0,
    peak_lr=0.01,
    label_smoothing=0.1,
    clip_norm=0.0,
)
PAIRS = random_pairs(40)


def trainer_of(
    model: TranslationModel, *, pairs: Pairs = PAIRS, seed: int = 1, **options: object
) -> Trainer:
    return Trainer(model, split_of(pairs), PLAIN.model_copy(update=options), runtime=CPU, seed=seed)


def losses(reports: list[StepReport]) -> list[float]:
    return [report.loss.item() for report in reports]


def summed_loss(model: TranslationModel, pairs: Pairs, *, label_smoothing: float) -> Tensor:
    """The loss by PyTorch's cross-entropy, pair by pair."""
    total = torch.zeros(())
    for src, tgt in pairs:
        logits = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tgt]]))[0]
        total = total + torch.nn.functional.cross_entropy(
            logits, torch.tensor([*tgt, EOS_ID]), label_smoothing=label_smoothing, reduction="sum"
        )
    return total


def num_targets(pairs: Pairs) -> int:
    return sum(len(tgt) + 1 for _, tgt in pairs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_eight_pairs_are_learned_without_an_error(backend: str) -> None:
    pairs = random_pairs(8, seed=4)
    model = tiny_model(backend, d_model=32, d_ff=64, decoder_layers=2, tie="all")
    trainer = trainer_of(
        model, pairs=pairs, max_epochs=60, peak_lr=0.02, warmup_steps=10, schedule="cosine"
    )
    list(trainer.run())
    model.eval()
    with torch.no_grad():
        state = model.start(pad_ids([[*src, EOS_ID] for src, _ in pairs]))
        hyps = greedy_search(model.step, state, torch.full((8,), 12), Rules(BOS_ID, EOS_ID))
    assert hyps == [tgt for _, tgt in pairs]


def test_report_gives_loss_and_nll_per_target_token() -> None:
    model = randomised(tiny_model())
    expected_loss, expected_nll = (
        (summed_loss(model, PAIRS, label_smoothing=smoothing) / num_targets(PAIRS)).item()
        for smoothing in (0.1, 0.0)
    )
    report = next(trainer_of(model).run())
    assert report.loss.item() == pytest.approx(expected_loss, rel=1e-5)
    assert report.nll.item() == pytest.approx(expected_nll, rel=1e-5)
    assert report.tgt_tokens == num_targets(PAIRS)


def test_report_gives_the_norm_of_the_gradient_before_clipping() -> None:
    model = randomised(tiny_model())
    loss = summed_loss(model, PAIRS, label_smoothing=0.1) / num_targets(PAIRS)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    expected = torch.cat([g.flatten() for g in gradients]).norm().item()
    report = next(trainer_of(model, clip_norm=0.01).run())
    assert report.grad_norm.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("clip_norm", "expected"), [(0.01, 0.01), (0.0, None), (1e6, None)])
def test_gradient_is_clipped_to_the_norm_asked_for(
    clip_norm: float, expected: float | None
) -> None:
    trainer = trainer_of(randomised(tiny_model()), clip_norm=clip_norm)
    report = next(trainer.run())
    means = [t.flatten() for name, t in trainer.state_dict().items() if name.endswith(":exp_avg")]
    # After one update, Adam's running mean is a tenth of the gradient.
    used = 10 * torch.cat(means).norm().item()
    assert used == pytest.approx(expected or report.grad_norm.item(), rel=1e-4)


def test_an_update_moves_weights_by_the_reported_rate() -> None:
    model = randomised(tiny_model())
    before = model.output.weight.detach().clone()
    report = next(trainer_of(model, schedule="cosine", warmup_steps=4, peak_lr=0.008).run())
    assert report.lr == pytest.approx(0.002)
    # Adam's first update moves each weight by the rate, up or down.
    moved = (model.output.weight.detach() - before).abs()
    assert moved[EOS_ID:].median().item() == pytest.approx(0.002, rel=1e-3)


def test_rates_follow_the_schedule() -> None:
    trainer = trainer_of(
        tiny_model(), max_epochs=3, tokens_per_batch=100, warmup_steps=2, schedule="cosine"
    )
    rates = [report.lr for report in trainer.run()]
    total = trainer.total_steps
    assert len(rates) == total
    assert rates == [
        learning_rate(step, schedule="cosine", peak_lr=0.01, warmup_steps=2, total_steps=total)
        for step in range(1, total + 1)
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_accumulation_of_two_equals_a_double_batch(backend: str) -> None:
    # Two batches of unequal numbers of tokens, so that a mean of means would show.
    pairs: Pairs = [([4, 5], [6])] * 4 + [([4, 5, 6], [7, 8, 9, 10, 4, 5, 6])] * 4
    parts, whole = (randomised(tiny_model(backend)) for _ in range(2))
    accumulating = trainer_of(parts, pairs=pairs, tokens_per_batch=32, accumulation=2)
    double = trainer_of(whole, pairs=pairs, tokens_per_batch=64)
    (accumulated,), (doubled,) = list(accumulating.run()), list(double.run())
    assert accumulated.tgt_tokens == doubled.tgt_tokens
    torch.testing.assert_close(accumulated.loss, doubled.loss)
    torch.testing.assert_close(accumulated.grad_norm, doubled.grad_norm)
    running_means = [
        {name: t for name, t in trainer.state_dict().items() if name.endswith(":exp_avg")}
        for trainer in (accumulating, double)
    ]
    torch.testing.assert_close(running_means[0], running_means[1], rtol=1e-4, atol=1e-7)


def test_accumulation_counts_updates_not_batches() -> None:
    pairs: Pairs = [([4], [5])] * 10  # ten batches of one pair
    trainer = trainer_of(tiny_model(), pairs=pairs, tokens_per_batch=2, accumulation=4)
    assert [report.tgt_tokens for report in trainer.run()] == [8, 8, 4]


def test_model_trains_even_when_it_was_left_in_eval_mode() -> None:
    model = tiny_model()
    trainer = trainer_of(model, max_epochs=2)
    updates = trainer.run()
    next(updates)
    model.eval()
    next(updates)
    assert model.training


def test_an_epoch_sees_every_target_token_once() -> None:
    reports = list(trainer_of(tiny_model(), tokens_per_batch=50, max_epochs=2).run())
    seen = [sum(r.tgt_tokens for r in reports if r.epoch == epoch) for epoch in (1, 2)]
    assert seen == [num_targets(PAIRS)] * 2


@pytest.mark.parametrize("pairs_seed", [5, 8], ids=["a longer epoch", "a shorter epoch"])
def test_training_ends_exactly_after_its_epochs(
    pairs_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "POOL_BATCHES", 1)
    pairs = random_pairs(40, seed=pairs_seed, longest=12)
    trainer = trainer_of(tiny_model(), pairs=pairs, tokens_per_batch=60, max_epochs=3)
    reports = list(trainer.run())
    updates = [sum(report.epoch == epoch for report in reports) for epoch in (1, 2, 3)]
    assert len(set(updates)) > 1, "all epochs are of one length, which shows nothing"
    assert [report.epoch for report in reports if report.is_end_of_epoch] == [1, 2, 3]
    assert reports[-1].is_end_of_epoch
    assert len(reports) == trainer.total_steps


@pytest.mark.parametrize(("max_steps", "expected"), [(1, 1), (5, 5), (10**6, 6), (None, 6)])
def test_max_steps_ends_training_before_max_epochs(max_steps: int | None, expected: int) -> None:
    pairs: Pairs = [([4], [5])] * 4  # two batches an epoch
    trainer = trainer_of(
        tiny_model(), pairs=pairs, tokens_per_batch=4, max_epochs=3, max_steps=max_steps
    )
    assert trainer.total_steps == expected
    assert len(list(trainer.run())) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_sentences_as_long_as_the_model_takes_are_trained_on(backend: str) -> None:
    model = tiny_model(backend, max_len=10)
    pairs: Pairs = [([4] * model.longest_sentence, [5] * model.longest_sentence)]
    expected = summed_loss(model, pairs, label_smoothing=0.1) / num_targets(pairs)
    trainer = trainer_of(model, pairs=pairs)
    assert trainer.shapes == {BatchShape(1, 10, 10)}
    (report,) = trainer.run()
    torch.testing.assert_close(report.loss, expected.detach())


def test_betas_are_those_asked_for() -> None:
    trainer = trainer_of(randomised(tiny_model()), betas=(0.5, 0.75))
    report = next(trainer.run())
    tensors = trainer.state_dict()
    means, squares = (
        torch.cat([t.flatten() for name, t in tensors.items() if name.endswith(f":{kind}")])
        for kind in ("exp_avg", "exp_avg_sq")
    )
    # After one update from zero, the running means hold (1 - beta) of the gradient and of its
    # square.
    assert means.norm().item() == pytest.approx(0.5 * report.grad_norm.item(), rel=1e-4)
    assert squares.sum().item() == pytest.approx(0.25 * report.grad_norm.item() ** 2, rel=1e-4)


DROPPING = {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1}


def resumable(model: TranslationModel) -> Trainer:
    return trainer_of(
        model,
        tokens_per_batch=60,
        max_epochs=3,
        schedule="cosine",
        warmup_steps=3,
        clip_norm=0.5,
        weight_decay=0.1,
        accumulation=2,
    )


def interrupted(
    backend: str, *, after: int, disturb: Callable[[], object]
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and weights of a training that stops after some updates and is resumed by a new
    trainer.
    """
    torch.manual_seed(1)
    model = tiny_model(backend, options=DROPPING)
    trainer = resumable(model)
    before = losses(list(islice(trainer.run(), after)))
    progress, tensors, weights = saved(trainer)
    disturb()
    other = resumable(tiny_model(backend, seed=9, options=DROPPING))
    other.model.load_state_dict(weights)
    other.restore(progress, tensors)
    return before + losses(list(other.run())), other.model.state_dict()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("after", [1, 2, 3, 4, 5])
def test_a_resumed_training_has_exactly_the_losses_of_one_that_never_stopped(
    backend: str, after: int
) -> None:
    torch.manual_seed(1)
    trainer = resumable(tiny_model(backend, options=DROPPING))
    uninterrupted = losses(list(trainer.run()))
    assert len(set(uninterrupted)) > 6
    found, weights = interrupted(backend, after=after, disturb=lambda: torch.manual_seed(999))
    assert found == uninterrupted
    torch.testing.assert_close(weights, trainer.model.state_dict(), rtol=0, atol=0)


def saved(trainer: Trainer) -> tuple[int, dict[str, Tensor], dict[str, Tensor]]:
    """The step, tensors and the weights of `trainer`, as a checkpoint would keep them."""
    tensors = {name: tensor.clone() for name, tensor in trainer.state_dict().items()}
    weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    return trainer.step, tensors, weights


@pytest.mark.parametrize("tokens_per_batch", [1, 40, 10_000])
def test_mean_nll_equals_the_sum_over_pairs(tokens_per_batch: int) -> None:
    model = randomised(tiny_model(dropout=0.5))
    with torch.no_grad():
        expected = summed_loss(model, PAIRS, label_smoothing=0.0).item() / num_targets(PAIRS)
    actual = mean_nll(
        model.train(), split_of(PAIRS), tokens_per_batch=tokens_per_batch, runtime=CPU
    )
    assert actual == pytest.approx(expected, rel=1e-5)


def test_mean_nll_draws_no_random_numbers() -> None:
    model = tiny_model(dropout=0.5).train()
    before = torch.get_rng_state()
    mean_nll(model, split_of(PAIRS), tokens_per_batch=100, runtime=CPU)
    assert torch.equal(torch.get_rng_state(), before)


def spoil_gradient(model: TranslationModel, *, calls: set[int], value: float) -> None:
    """Let the gradient of the output layer be `value` in the updates `calls`, though the loss is
    finite.
    """
    counter = count(1)
    model.output.weight.register_hook(  # type: ignore[no-untyped-call]
        lambda gradient: torch.full_like(gradient, value) if next(counter) in calls else gradient
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("clip_norm", [0.0, 1.0], ids=["unclipped", "clipped"])
def test_update_with_a_gradient_that_is_not_finite_is_skipped(
    value: float, clip_norm: float
) -> None:
    model = randomised(tiny_model())
    trainer = trainer_of(model, tokens_per_batch=40, clip_norm=clip_norm)
    spoil_gradient(model, calls={2}, value=value)
    reports = trainer.run()
    assert not next(reports).skipped
    weights = [p.detach().clone() for p in model.parameters()]
    state = {name: tensor.clone() for name, tensor in trainer.state_dict().items()}
    spoiled = next(reports)
    assert (spoiled.skipped.item(), spoiled.loss.isfinite().item()) == (1, True)
    torch.testing.assert_close(list(model.parameters()), weights, rtol=0, atol=0)
    torch.testing.assert_close(trainer.state_dict(), state, rtol=0, atol=0)
    before = model.output.weight.detach().clone()
    assert not next(reports).skipped
    assert not torch.equal(model.output.weight, before)


def test_update_with_a_loss_that_is_not_finite_is_skipped() -> None:
    model = randomised(tiny_model())
    before = model.output.weight.detach().clone()
    with torch.no_grad():
        model.src_embedding.weight.fill_(float("inf"))
    report = next(trainer_of(model).run())
    assert report.skipped
    assert torch.equal(model.output.weight, before)


STILL: dict[str, Any] = {"peak_lr": 1e-30}
"""The weights stay as they are."""


def test_each_update_drops_other_elements() -> None:
    trainer = trainer_of(tiny_model(options=DROPPING), pairs=PAIRS[:1], max_epochs=4, **STILL)
    assert len(set(losses(list(trainer.run())))) == 4


def test_each_batch_of_an_update_drops_other_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[float] = []

    def loss(model: TranslationModel, batch: Batch, **options: Any) -> Loss:  # noqa: ANN401
        of_batch = batch_loss(model, batch, **options)
        found.append(of_batch.minimized.item())
        return of_batch

    monkeypatch.setattr("mt_cli.training.trainer.batch_loss", loss)
    pairs = [PAIRS[0]] * 3
    trainer = trainer_of(
        tiny_model(options=DROPPING), pairs=pairs, tokens_per_batch=1, accumulation=3, **STILL
    )
    assert len(list(trainer.run())) == 1
    assert len(set(found)) == 3


@pytest.fixture
def alone_among_two(monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """What each process would add up with the other; nothing else is sent."""
    sent: list[list[Tensor]] = []
    monkeypatch.setattr(World, "broadcast_", lambda *_: None)
    monkeypatch.setattr(World, "broadcast_int", lambda _, value: value)
    monkeypatch.setattr(
        World, "all_reduce", lambda _, tensors: sent.append([t.detach().clone() for t in tensors])
    )
    return sent


@pytest.mark.usefixtures("alone_among_two")
def test_each_process_drops_other_elements() -> None:
    config = PLAIN.model_copy(update=STILL)
    found = set()
    for rank in (0, 1):  # each with its shard, one of two equal pairs
        trainer = Trainer(
            tiny_model(options=DROPPING),
            split_of([PAIRS[0]] * 2),
            config,
            runtime=CPU,
            seed=1,
            world=World(rank, 2),
        )
        found.add(next(trainer.run()).loss.item())
    assert len(found) == 2


@pytest.mark.parametrize("num_pairs", [1, 5], ids=["one has no pair", "each has some"])
def test_gradients_of_all_processes_add_up(
    num_pairs: int, alone_among_two: list[list[Tensor]]
) -> None:
    pairs = PAIRS[:num_pairs]
    for rank in (0, 1):
        trainer = Trainer(
            randomised(tiny_model()),
            split_of(pairs),
            PLAIN,
            runtime=CPU,
            seed=1,
            world=World(rank, 2),
        )
        assert next(trainer.run()).tgt_tokens == num_targets(pairs)
    of_first, of_second = alone_among_two
    assert any(tensor.any() for tensor in of_second) == (num_pairs > 1)
    model = randomised(tiny_model())
    total = summed_loss(model, pairs, label_smoothing=0.1)
    gradients = torch.autograd.grad(total / num_targets(pairs), list(model.parameters()))
    *summed, sums = (first + second for first, second in zip(of_first, of_second, strict=True))
    torch.testing.assert_close(summed, list(gradients), rtol=1e-4, atol=1e-6)
    assert sums[0].item() == pytest.approx(total.item(), rel=1e-5)


def test_dropout_depends_on_the_seed() -> None:
    first, other = (
        next(
            trainer_of(tiny_model(options=DROPPING), pairs=PAIRS[:1], seed=seed, **STILL).run()
        ).loss.item()
        for seed in (1, 2)
    )
    assert first != other
