"""The trainer: that it learns, what an update is, that it resumes exactly, and which updates are
replayed as CUDA graphs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, product
from typing import Any, get_args

import numpy as np
import pytest
import torch
from tiny import BACKENDS, CPU, random_pairs, randomised, split_of, tiny_model
from torch import Tensor

from mt_cli.config.schema import OptimizerKind, TrainingConfig
from mt_cli.data import batching
from mt_cli.data.batching import Batch, collate, pad_ids
from mt_cli.decoding.search import Rules, greedy_search
from mt_cli.model.model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID
from mt_cli.training.distributed import World
from mt_cli.training.loss import Loss, batch_loss
from mt_cli.training.optimizer import learning_rate
from mt_cli.training.trainer import CudaGraphs, StepReport, Trainer

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
    model: TranslationModel,
    *,
    pairs: Pairs = PAIRS,
    seed: int = 1,
    world: World | None = None,
    **options: object,
) -> Trainer:
    config = PLAIN.model_copy(update=options)
    return Trainer(model, split_of(pairs), config, runtime=CPU, seed=seed, world=world)


def running_means(trainer: Trainer) -> dict[str, Tensor]:
    """Adam's, which after one update are a tenth of the gradient."""
    return {n: each for n, each in trainer.state_dict().items() if n.endswith(":exp_avg")}


def losses(reports: Iterable[StepReport]) -> list[float]:
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


NUM_TARGETS = num_targets(PAIRS)


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


def test_report_gives_loss_and_nll_per_target_token_and_the_norm_of_the_gradient() -> None:
    model = randomised(tiny_model())
    loss, nll = (summed_loss(model, PAIRS, label_smoothing=s) / NUM_TARGETS for s in (0.1, 0.0))
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    norm = torch.cat([each.flatten() for each in gradients]).norm().item()
    trainer = trainer_of(model, clip_norm=0.01)
    report = next(trainer.run())  # the norm is that before clipping
    assert report.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert report.nll.item() == pytest.approx(nll.item(), rel=1e-5)
    assert report.grad_norm.item() == pytest.approx(norm, rel=1e-4)
    assert report.tgt_tokens == NUM_TARGETS
    used = torch.cat([10 * each.flatten() for each in running_means(trainer).values()])
    assert used.norm().item() == pytest.approx(0.01, rel=1e-4)


def test_updates_move_weights_by_the_reported_rates_of_the_schedule() -> None:
    model = randomised(tiny_model())
    before = model.output.weight.detach().clone()
    trainer = trainer_of(
        model, max_epochs=3, tokens_per_batch=100, warmup_steps=4, schedule="cosine"
    )
    updates = trainer.run()
    rates = [next(updates).lr]
    # Adam's first update moves each weight by the rate, up or down.
    moved = (model.output.weight.detach() - before).abs()
    assert moved[EOS_ID:].median().item() == pytest.approx(0.0025, rel=1e-3)
    rates += [report.lr for report in updates]
    total = trainer.total_steps
    assert rates == [
        learning_rate(step, schedule="cosine", peak_lr=0.01, warmup_steps=4, total_steps=total)
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
    found, expected = running_means(accumulating), running_means(double)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


def test_accumulation_counts_updates_not_batches() -> None:
    pairs: Pairs = [([4], [5])] * 10  # ten batches of one pair
    trainer = trainer_of(tiny_model(), pairs=pairs, tokens_per_batch=2, accumulation=4)
    assert [report.tgt_tokens for report in trainer.run()] == [8, 8, 4]


def test_all_epochs_have_as_many_updates_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "POOL_BATCHES", 1)
    pairs = random_pairs(40, seed=5, longest=12)
    trainer = trainer_of(tiny_model(), pairs=pairs, tokens_per_batch=60, max_epochs=4)
    plans = [
        list(
            batching.plan_epoch(
                split_of(pairs),
                tokens_per_batch=60,
                max_width=trainer.model.max_len,
                rng=np.random.default_rng([1, epoch]),
            )
        )
        for epoch in range(4)
    ]
    assert len({len(plan) for plan in plans}) > 1, "all plans are of one length: shows nothing"
    reports = list(trainer.run())
    updates = [sum(report.epoch == epoch for report in reports) for epoch in (1, 2, 3, 4)]
    assert updates == [trainer.steps_per_epoch] * 4
    assert [report.epoch for report in reports if report.is_end_of_epoch] == [1, 2, 3, 4]
    assert len(reports) == trainer.total_steps
    first = [report.tgt_tokens for report in reports if report.epoch == 1]
    assert sum(first) == num_targets(pairs)  # which sees every target once


def test_the_updates_of_a_large_corpus_are_told_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batching, "POOL_BATCHES", 4)
    monkeypatch.setattr("mt_cli.training.trainer.ENOUGH_PAIRS", 300)
    pairs = random_pairs(1500, seed=5, longest=9)
    trainer = trainer_of(tiny_model(), pairs=pairs, tokens_per_batch=60, max_epochs=2)
    monkeypatch.setattr("mt_cli.training.trainer.ENOUGH_PAIRS", 1500)
    exact = trainer_of(tiny_model(), pairs=pairs, tokens_per_batch=60, max_epochs=2)
    assert trainer.steps_per_epoch == pytest.approx(exact.steps_per_epoch, rel=0.03)
    assert len(list(trainer.run())) == 2 * trainer.steps_per_epoch


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
    (report,) = trainer.run()
    torch.testing.assert_close(report.loss, expected.detach())


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


DROPPING = {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", get_args(OptimizerKind))
@pytest.mark.parametrize("after", [1, 4])
def test_a_resumed_training_has_exactly_the_losses_of_one_that_never_stopped(
    backend: str, optimizer: str, after: int
) -> None:
    def resumable(seed: int = 0) -> Trainer:
        return trainer_of(
            tiny_model(backend, seed=seed, options=DROPPING),
            tokens_per_batch=60,
            max_epochs=3,
            schedule="cosine",
            warmup_steps=3,
            clip_norm=0.5,
            weight_decay=0.1,
            accumulation=2,
            optimizer=optimizer,
        )

    uninterrupted = resumable()
    expected = losses(uninterrupted.run())
    assert len(set(expected)) > 6
    stopped = resumable()
    found = losses(islice(stopped.run(), after))
    torch.manual_seed(999)
    resumed = resumable(seed=9)
    resumed.model.load_state_dict(stopped.model.state_dict())
    resumed.restore(stopped.step, copied(stopped.state_dict()))
    assert found + losses(resumed.run()) == expected
    own, others = resumed.model.state_dict(), uninterrupted.model.state_dict()
    torch.testing.assert_close(own, others, rtol=0, atol=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("clip_norm", [0.0, 1.0], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("optimizer", get_args(OptimizerKind))
def test_update_with_a_gradient_that_is_not_finite_is_skipped(
    value: float, clip_norm: float, optimizer: str
) -> None:
    model = randomised(tiny_model())
    trainer = trainer_of(
        model, tokens_per_batch=40, clip_norm=clip_norm, optimizer=optimizer, weight_decay=0.1
    )
    reports = trainer.run()
    assert not next(reports).skipped
    weights, state = copied(model.state_dict()), copied(trainer.state_dict())
    hook = model.output.weight.register_hook(  # type: ignore[no-untyped-call]
        lambda gradient: torch.full_like(gradient, value)
    )
    spoiled = next(reports)
    hook.remove()
    assert (spoiled.skipped.item(), spoiled.loss.isfinite().item()) == (1, True)
    torch.testing.assert_close(copied(model.state_dict()), weights, rtol=0, atol=0)
    torch.testing.assert_close(trainer.state_dict(), state, rtol=0, atol=0)
    assert not next(reports).skipped
    assert not torch.equal(model.output.weight, weights["output.weight"])


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
def test_dropout_depends_on_seed_process_update_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[float] = []

    def loss(model: TranslationModel, batch: Batch, **options: Any) -> Loss:  # noqa: ANN401
        of_batch = batch_loss(model, batch, **options)
        found.append(of_batch.minimized.item())
        return of_batch

    monkeypatch.setattr("mt_cli.training.trainer.batch_loss", loss)
    pairs: Pairs = [([4] * 7, [5] * 7)] * 4  # two in a batch, one for each process
    options = {"tokens_per_batch": 16, "accumulation": 2, "max_epochs": 2, "peak_lr": 1e-30}
    for seed, rank in product((1, 2), (0, 1)):
        model = tiny_model(options=DROPPING)
        list(trainer_of(model, pairs=pairs, seed=seed, world=World(rank, 2), **options).run())
    assert len(set(found)) == len(found) == 2 * 2 * 2 * 2


@pytest.mark.parametrize("num_pairs", [1, 5], ids=["one has no pair", "each has some"])
def test_gradients_of_all_processes_add_up(
    num_pairs: int, alone_among_two: list[list[Tensor]]
) -> None:
    pairs = PAIRS[:num_pairs]
    for rank in (0, 1):
        trainer = trainer_of(randomised(tiny_model()), pairs=pairs, world=World(rank, 2))
        assert next(trainer.run()).tgt_tokens == num_targets(pairs)
    of_first, of_second = alone_among_two
    assert any(tensor.any() for tensor in of_second) == (num_pairs > 1)
    model = randomised(tiny_model())
    total = summed_loss(model, pairs, label_smoothing=0.1)
    gradients = torch.autograd.grad(total / num_targets(pairs), list(model.parameters()))
    *summed, sums = (first + second for first, second in zip(of_first, of_second, strict=True))
    torch.testing.assert_close(summed, list(gradients), rtol=1e-4, atol=1e-6)
    assert sums[0].item() == pytest.approx(total.item(), rel=1e-5)


# CUDA graphs, with graphs that only note what was captured


def computed(src_ids: Tensor, lr: float | Tensor, per_token: float | Tensor) -> Tensor:
    return src_ids.sum() * lr + per_token


def test_updates_of_a_shape_are_computed_once_then_captured_and_replayed_until_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[tuple[Any, Tensor]] = []
    notes: list[str] = []
    may_fail = False

    def update(batches: Sequence[Batch], lr: float | Tensor, per_token: float | Tensor) -> Tensor:
        inputs = (batches[0].src_ids, lr, per_token)
        made.append((inputs, computed(*inputs)))
        return made[-1][1]

    class Graph:
        captured: tuple[Any, Tensor]

        def pool(self) -> None: ...

        def replay(self) -> None:
            """Into the memory of what was captured."""
            inputs, output = self.captured
            output.copy_(computed(*inputs))

    @contextmanager
    def capture(graph: Graph, pool: None) -> Iterator[None]:
        yield
        if may_fail:
            raise torch.OutOfMemoryError("CUDA out of memory")
        graph.captured = made[-1]

    def outputs_are_right(replayed: CudaGraphs, widths: Sequence[int]) -> bool:
        shapes = product((4, 5, 6, 7), widths)
        batches = [collate(split_of([([each] * width, [5])]), [0]) for each, width in shapes]
        outputs = [replayed([batch], lr, 0.5) for lr, batch in enumerate(batches)]
        # No replay overwrites what an earlier one has given.
        return outputs == [computed(each.src_ids, lr, 0.5) for lr, each in enumerate(batches)]

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "usual")
    monkeypatch.setattr(torch.cuda, "set_stream", notes.append)
    replayed = CudaGraphs(update, start_over=lambda: notes.append("start over"))
    assert outputs_are_right(replayed, [1, 2])
    assert len(made) == 2 + 2
    may_fail = True
    assert outputs_are_right(replayed, [2, 3])  # of which the first has its graph
    assert len(made) == 4 + 5
    assert (notes, len(caplog.records)) == (["usual", "start over"], 1)
    two = [collate(split_of(PAIRS), [i]) for i in (0, 1)]
    for _ in range(3):  # several batches are not captured
        replayed(two, 1.0, 0.5)
    assert len(made) == 9 + 3
