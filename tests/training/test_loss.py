"""The training objective against PyTorch's own functions: cross-entropy, R-Drop, and teachers."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import BACKENDS, CPU, covering, randomised, split_of, tiny_model
from torch import Tensor
from torch.nn import functional as F

from mt_cli.data.batching import Batch, BatchShape, collate
from mt_cli.model.model import TranslationModel
from mt_cli.training import loss as module
from mt_cli.training.loss import LogitsLoss, Loss, Teachers, batch_loss

N, V = 7, 11
PAIRS = [([5, 6, 7], [4] * 6), ([8], [9, 10, 4])]
SPLIT = split_of(PAIRS)
R_DROP = 5.0


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def piece_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    smoothing: float = 0.1,
    r_drop: float = 0.0,
    predicted: Tensor | None = None,
    share: float = 0.0,
) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = LogitsLoss.apply(  # type: ignore[no-untyped-call]
        logits, targets, smoothing, r_drop, predicted, share
    )
    return found


def expected_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    smoothing: float = 0.1,
    r_drop: float = 0.0,
    predicted: Tensor | None = None,
    share: float = 0.0,
) -> Tensor:
    """Equation 3 of Liang et al. (2021) for `logits` (passes, n, V), with soft labels."""
    size = logits.shape[-1]
    labels = (1 - smoothing) * F.one_hot(targets, size) + smoothing / size
    if predicted is not None:
        labels = (1 - share) * labels + share * predicted
    total = sum((F.cross_entropy(z, labels, reduction="sum") for z in logits), torch.zeros(()))
    if r_drop:
        first, second = logits.log_softmax(-1)
        for one, other in ((first, second), (second, first)):
            divergence = F.kl_div(one, other, log_target=True, reduction="sum")
            total = total + r_drop / 2 * divergence
    return total


def gradients(loss: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, tensors)


def assert_close(actual: object, expected: object, *, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# A piece of tokens


@settings(max_examples=300)
@given(
    n=st.integers(0, 9),
    filler=st.integers(0, 3),
    vocab_size=st.integers(1, 11),
    block=st.integers(1, 99),
    smoothing=st.sampled_from([0.0, 0.1]) | st.floats(0, 0.99),
    r_drop=st.sampled_from([0.0, 0.5, R_DROP]),
    share=st.none() | st.floats(0, 1),
)
def test_value_nll_and_gradient_of_a_piece_of_any_shape_equal_torchs(
    n: int,
    filler: int,
    vocab_size: int,
    block: int,
    smoothing: float,
    r_drop: float,
    share: float | None,
) -> None:
    logits = numbers(2 if r_drop else 1, n + filler, vocab_size).requires_grad_()
    real, targets = logits[:, :n], torch.arange(n) % vocab_size
    predicted = None if share is None else numbers(n, vocab_size, seed=1).softmax(-1)
    options: dict[str, Any] = {"smoothing": smoothing, "r_drop": r_drop, "share": share or 0.0}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(module.BLOCK_LOGITS, "cpu", block)
        loss, nll = piece_loss(logits, targets, predicted=predicted, **options)
    expected = expected_loss(real, targets, predicted=predicted, **options)
    assert_close(loss, expected, tolerance=1e-4)
    assert_close(nll, expected_loss(real, targets, smoothing=0.0).detach(), tolerance=1e-4)
    # Of filler, too: it has none.
    assert_close(gradients(-2 * loss, logits), gradients(-2 * expected, logits), tolerance=1e-4)


def test_huge_logits_stay_finite() -> None:
    logits = (numbers(2, N, V) * 1e6).requires_grad_()
    loss, _ = piece_loss(logits, torch.arange(N), r_drop=R_DROP)
    assert loss.isfinite()
    assert gradients(loss, logits)[0].isfinite().all()


@pytest.mark.parametrize("r_drop", [0.0, R_DROP])
def test_bf16_logits_are_close_to_fp32(r_drop: float) -> None:
    logits = numbers(2 if r_drop else 1, 200, 100).requires_grad_()
    targets = torch.arange(200) % 100
    low, _ = piece_loss(logits.bfloat16(), targets, r_drop=r_drop)
    exact = expected_loss(logits, targets, r_drop=r_drop)
    assert_close(low, exact, tolerance=0.01)
    (found,), (wanted,) = gradients(low, logits), gradients(exact, logits)
    assert (found - wanted).norm() < 0.02 * wanted.norm()


# A batch


def teachers_of(*models: TranslationModel, share: float = 0.5) -> Teachers:
    return Teachers(models, share=share, runtime=CPU)


def expected_of_batch(
    model: TranslationModel,
    batch: Batch,
    *,
    smoothing: float,
    teachers: Sequence[TranslationModel] = (),
    share: float = 0.0,
) -> Tensor:
    """The loss of all real tokens, from the logits of whole sentences."""

    def logits_of(each: TranslationModel) -> Tensor:
        return each(batch.src_ids, batch.tgt_in)[batch.tgt_out != 0]

    predicted = None
    if teachers:
        predicted = torch.stack([logits_of(each).softmax(-1) for each in teachers]).mean(0).detach()
    targets = batch.tgt_out[batch.tgt_out != 0]
    return expected_loss(
        logits_of(model)[None], targets, smoothing=smoothing, predicted=predicted, share=share
    )


@pytest.mark.parametrize(
    "case",
    covering(
        {
            "backend": BACKENDS,
            "tie": ("none", "decoder", "all"),
            "output_bias": (True, False),
            "piece": (1, 2 * V, 1 << 20),
            "r_drop": (0.0, R_DROP),
            "num_teachers": (0, 1, 2),
        },
        together=2,
    ),
    ids=str,
)
def test_batch_loss_and_all_its_gradients_equal_torchs(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of real tokens only, in pieces of several blocks; without dropout, R-Drop adds nothing."""
    monkeypatch.setattr(module, "PIECE_STEP", 2)
    monkeypatch.setitem(module.BLOCK_LOGITS, "cpu", 3 * V)
    monkeypatch.setitem(module.PIECE_LOGITS, "cpu", case["piece"])
    options = {name: case[name] for name in ("tie", "output_bias")}
    model = randomised(tiny_model(case["backend"], options=options))
    others = [
        randomised(tiny_model(seed=2, output_bias=True)),
        randomised(tiny_model(seed=3, d_model=16), seed=4),
    ][: case["num_teachers"]]
    batch = collate(SPLIT, [0, 1])
    loss = batch_loss(
        model,
        batch,
        label_smoothing=0.1,
        r_drop=case["r_drop"],
        teachers=teachers_of(*others, share=0.3) if others else None,
    )
    expected = expected_of_batch(model, batch, smoothing=0.1, teachers=others, share=0.3)
    assert_close(loss.minimized, expected)
    assert_close(loss.nll, expected_of_batch(model, batch, smoothing=0.0).detach())
    assert not loss.nll.requires_grad
    parameters = list(model.parameters())
    assert_close(gradients(loss.minimized, *parameters), gradients(expected, *parameters))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("r_drop", [0.0, 2.0], ids=["plain", "R-Drop"])
@pytest.mark.parametrize("has_teacher", [False, True], ids=["alone", "taught"])
def test_padding_changes_nothing(backend: str, r_drop: float, has_teacher: bool) -> None:
    model = randomised(tiny_model(backend, decoder_layers=2, tie="all", output_bias=False))
    teachers = teachers_of(randomised(tiny_model(seed=2, output_bias=True)))
    batch = collate(SPLIT, [0, 1])
    wider = collate(SPLIT, [0, 1], BatchShape(rows=5, src_width=6, tgt_width=9))
    assert len(batch.with_targets_padded().targets) > len(batch.targets)
    parameters = list(model.parameters())

    def measured(each: Batch) -> tuple[object, ...]:
        given = teachers if has_teacher else None
        loss = batch_loss(model, each, label_smoothing=0.1, r_drop=r_drop, teachers=given)
        return loss.minimized, loss.nll, gradients(loss.minimized, *parameters)

    expected = measured(batch)
    assert_close(measured(wider), expected, tolerance=1e-4)
    assert_close(measured(batch.with_targets_padded()), expected, tolerance=1e-4)


def test_with_dropout_the_passes_differ_and_that_costs() -> None:
    model = randomised(tiny_model(dropout=0.3)).train()

    def loss(r_drop: float) -> float:
        torch.manual_seed(0)
        batch = collate(SPLIT, [0, 1])
        return batch_loss(model, batch, label_smoothing=0.1, r_drop=r_drop).minimized.item()

    assert loss(R_DROP) > loss(1e-9) + 0.01


# Teachers


def test_teachers_read_without_dropout_and_learn_nothing() -> None:
    teacher = randomised(tiny_model(dropout=0.5)).train()
    before = [each.clone() for each in teacher.parameters()]
    teachers, student = teachers_of(teacher, share=1.0), randomised(tiny_model(seed=2))

    def loss() -> Loss:
        return batch_loss(student, collate(SPLIT, [0, 1]), label_smoothing=0.1, teachers=teachers)

    assert loss().minimized == loss().minimized
    torch.autograd.backward(loss().minimized)
    assert all(each.grad is None for each in teacher.parameters())
    assert all(map(torch.equal, before, teacher.parameters()))
