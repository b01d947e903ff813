"""Word-level distillation against PyTorch's cross-entropy with soft labels."""

from collections.abc import Sequence
from itertools import islice

import pytest
import torch
from tiny import BACKENDS, CPU, random_pairs, randomised, split_of, tiny_model
from torch import Tensor
from torch.nn import functional as F

from mt_cli.config.schema import TrainingConfig
from mt_cli.data.batching import BatchShape, collate
from mt_cli.model.model import TranslationModel
from mt_cli.training import loss as module
from mt_cli.training.loss import (
    TeacherLabels,
    TeacherOutput,
    Teachers,
    batch_loss,
    linear_cross_entropy,
)
from mt_cli.training.trainer import Trainer

N, D, V = 7, 5, 11
PAIRS = [([5, 6, 7], [4] * 6), ([8], [9, 10, 4])]
SPLIT = split_of(PAIRS)
SMOOTHING = 0.1
CONFIG = TrainingConfig(
    max_epochs=4, tokens_per_batch=60, schedule="constant", warmup_steps=0, peak_lr=0.01
)


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def teachers_of(*models: TranslationModel, share: float = 0.5) -> Teachers:
    return Teachers(models, share=share, runtime=CPU)


def soft_labels(targets: Tensor, predicted: Tensor, *, share: float, smoothing: float) -> Tensor:
    smoothed = (1 - smoothing) * F.one_hot(targets, V) + smoothing / V
    return (1 - share) * smoothed + share * predicted


@pytest.fixture
def few_logits_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In several pieces of several blocks."""
    monkeypatch.setattr(module, "PIECE_STEP", 2)
    monkeypatch.setitem(module.BLOCK_LOGITS, "cpu", 3 * V)


@pytest.mark.usefixtures("few_logits_at_a_time")
@pytest.mark.parametrize("piece", [1, 2 * V, 1 << 20])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("r_drop", [0.0, 2.0])
@pytest.mark.parametrize("num_teachers", [1, 2])
def test_value_nll_and_gradients_equal_those_of_torch(
    piece: int, share: float, r_drop: float, num_teachers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.PIECE_LOGITS, "cpu", piece)
    passes = 2 if r_drop else 1
    hidden = numbers(passes, N, D, seed=0).requires_grad_()
    weight = numbers(V, D, seed=1).requires_grad_()
    bias = numbers(V, seed=2).requires_grad_()
    targets = torch.arange(N)
    outputs = [
        TeacherOutput(numbers(N, 3, seed=3), numbers(V, 3, seed=4), None),
        TeacherOutput(numbers(N, 4, seed=5), numbers(V, 4, seed=6), numbers(V, seed=7)),
    ][:num_teachers]
    given = TeacherLabels(share, outputs)
    loss = linear_cross_entropy(
        hidden,
        weight,
        bias,
        targets,
        label_smoothing=SMOOTHING,
        r_drop=r_drop,
        teacher_labels=given,
    )

    predictions = [F.linear(each.hidden, each.weight, each.bias).softmax(-1) for each in outputs]
    predicted = torch.stack(predictions).mean(0)
    labels = soft_labels(targets, predicted, share=share, smoothing=SMOOTHING)
    logits = F.linear(hidden, weight, bias)
    expected = sum(F.cross_entropy(z, labels, reduction="sum") for z in logits) / passes
    if r_drop:
        first, second = logits.log_softmax(-1)
        for one, other in ((first, second), (second, first)):
            divergence = F.kl_div(one, other, log_target=True, reduction="sum")
            expected = expected + r_drop / 4 * divergence
    nll = sum(F.cross_entropy(z, targets, reduction="sum") for z in logits) / passes
    torch.testing.assert_close(loss.minimized, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss.nll, torch.as_tensor(nll).detach(), rtol=1e-5, atol=1e-5)
    for own, other in zip(
        torch.autograd.grad(loss.minimized, (hidden, weight, bias)),
        torch.autograd.grad(torch.as_tensor(expected), (hidden, weight, bias)),
        strict=True,
    ):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5)


def test_label_is_half_the_token_and_half_the_prediction() -> None:
    """Two words; the model's logits are 0 and log 3, the teacher's log 4 and 0, the token is 0."""
    weight = torch.tensor([[0.0], [1.0]])
    output = TeacherOutput(torch.ones(1, 1), torch.tensor([[4.0], [1.0]]).log(), None)
    teacher = TeacherLabels(0.5, [output])
    hidden = torch.full((1, 1, 1), 3.0).log().requires_grad_()
    loss = linear_cross_entropy(
        hidden, weight, None, torch.tensor([0]), label_smoothing=0.0, teacher_labels=teacher
    )
    # The label is half of (1, 0) and half of (0.8, 0.2): (0.9, 0.1).
    expected = -0.9 * torch.tensor(0.25).log() - 0.1 * torch.tensor(0.75).log()
    torch.testing.assert_close(loss.minimized, expected)
    (gradient,) = torch.autograd.grad(loss.minimized, hidden)
    torch.testing.assert_close(gradient.item(), 0.75 - 0.1)


def test_teachers_read_without_dropout_and_learn_nothing() -> None:
    teacher = randomised(tiny_model(dropout=0.5)).train()
    before = [each.clone() for each in teacher.parameters()]
    batch = collate(SPLIT, [0, 1])
    teachers = teachers_of(teacher, share=1.0)
    student = randomised(tiny_model(seed=2))
    losses = [
        batch_loss(student, batch, label_smoothing=0.1, teacher_labels=teachers.labels(batch))
        for _ in range(2)
    ]
    assert losses[0].minimized == losses[1].minimized
    torch.autograd.backward(losses[0].minimized)
    assert all(each.grad is None for each in teacher.parameters())
    assert all(map(torch.equal, before, teacher.parameters()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_student_that_predicts_what_its_teacher_does_has_nothing_to_learn(backend: str) -> None:
    student = randomised(tiny_model(backend))
    teacher = randomised(tiny_model(backend))
    batch = collate(SPLIT, [0, 1])
    given = teachers_of(teacher, share=1.0).labels(batch)
    loss = batch_loss(student, batch, label_smoothing=0.1, teacher_labels=given)
    gradients = torch.autograd.grad(loss.minimized, list(student.parameters()))
    assert max(float(each.abs().max()) for each in gradients) < 1e-5
    log_p = teacher(batch.src_ids, batch.tgt_in).flatten(0, 1)[batch.tgt_places].log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum()
    torch.testing.assert_close(loss.minimized, entropy)


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_padding_changes_nothing(r_drop: float) -> None:
    student = randomised(tiny_model(output_bias=False))
    teachers = teachers_of(randomised(tiny_model(seed=2, d_model=8, output_bias=True)))
    batch = collate(SPLIT, [0, 1])
    wider = collate(SPLIT, [0, 1], BatchShape(rows=5, src_width=6, tgt_width=9))
    losses = [
        batch_loss(
            student, each, label_smoothing=0.1, r_drop=r_drop, teacher_labels=teachers.labels(each)
        )
        for each in (batch, wider, batch.with_targets_padded())
    ]
    parameters = list(student.parameters())
    expected = torch.autograd.grad(losses[0].minimized, parameters)
    for loss in losses[1:]:
        torch.testing.assert_close(loss.minimized, losses[0].minimized)
        torch.testing.assert_close(loss.nll, losses[0].nll)
        found = torch.autograd.grad(loss.minimized, parameters)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_trainer_learns_what_the_teacher_predicts(accumulation: int) -> None:
    """It comes nearer to the teacher than by the text, which is random."""
    pairs = random_pairs(40)
    config = CONFIG.model_copy(update={"accumulation": accumulation, "max_epochs": 10})
    distances = []
    for share in (0.0, 1.0):
        student = tiny_model(seed=2)
        teacher = randomised(tiny_model())
        own = config.model_copy(update={"distil_share": share})
        trainer = Trainer(student, split_of(pairs), own, runtime=CPU, seed=1)
        trainer.learn_from([teacher])
        assert len(list(trainer.run())) == trainer.total_steps
        distances.append(divergence(student.eval(), teacher, pairs))
    assert distances[1] < 0.5 * distances[0]


def divergence(
    student: TranslationModel,
    teacher: TranslationModel,
    pairs: Sequence[tuple[list[int], list[int]]],
) -> float:
    batch = collate(split_of(pairs), range(len(pairs)))
    with torch.no_grad():
        own = student(batch.src_ids, batch.tgt_in).flatten(0, 1)[batch.tgt_places]
        wanted = teacher(batch.src_ids, batch.tgt_in).flatten(0, 1)[batch.tgt_places]
    return float(
        F.kl_div(
            own.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean"
        )
    )


def test_teachers_without_a_share_and_a_share_without_teachers_change_nothing() -> None:
    losses = []
    for share, teachers in ((0.0, [randomised(tiny_model())]), (0.9, [])):
        config = CONFIG.model_copy(update={"distil_share": share})
        trainer = Trainer(tiny_model(), SPLIT, config, runtime=CPU, seed=1)
        if teachers:
            trainer.learn_from(teachers)
        losses.append([float(report.loss) for report in islice(trainer.run(), 4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
