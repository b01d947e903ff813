"""R-Drop's loss against PyTorch's own functions, value and gradients."""

from collections.abc import Iterator

import pytest
import torch
from tiny import randomised, split_of, tiny_model
from torch import Tensor
from torch.nn import functional as F

from mt_cli.data.batching import collate
from mt_cli.training import loss as module
from mt_cli.training.loss import batch_loss, linear_cross_entropy

N, D, V = 7, 5, 11


def operands() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden vectors of two passes, weight and bias, which want gradients, and targets."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, N, D), (V, D), (V,))
    hidden, weight, bias = (torch.randn(s, generator=generator).requires_grad_() for s in shapes)
    return hidden, weight, bias, torch.randint(V, (N,), generator=generator)


def expected_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    smoothing: float,
    alpha: float,
) -> Tensor:
    """Half of equation 3 of Liang et al. (2021)."""
    logits = [F.linear(each, weight, bias) for each in hidden]
    first, second = (F.log_softmax(each, -1) for each in logits)
    cross_entropies = [
        F.cross_entropy(z, targets, label_smoothing=smoothing, reduction="sum") for z in logits
    ]
    divergences = [
        F.kl_div(second, first, log_target=True, reduction="sum"),
        F.kl_div(first, second, log_target=True, reduction="sum"),
    ]
    return (
        sum(cross_entropies, torch.zeros(())) + alpha / 2 * sum(divergences, torch.zeros(()))
    ) / 2


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Few as the tokens here are, they make several pieces, and a piece several blocks."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "PIECE_STEP", 2)
        monkeypatch.setitem(module.BLOCK_LOGITS, "cpu", 2 * 3 * V)
        yield


def assert_close(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.5, 5.0])
@pytest.mark.parametrize("piece", [1, 2 * V, 6 * V, 1 << 20])
@pytest.mark.parametrize("has_bias", [True, False])
def test_value_and_gradients_equal_those_of_torch(
    smoothing: float, alpha: float, piece: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.PIECE_LOGITS, "cpu", piece)
    hidden, weight, bias, targets = operands()
    used_bias = bias if has_bias else None
    loss = linear_cross_entropy(
        hidden, weight, used_bias, targets, label_smoothing=smoothing, r_drop=alpha
    ).minimised
    expected = expected_loss(hidden, weight, used_bias, targets, smoothing=smoothing, alpha=alpha)
    assert_close(loss, expected)
    wanted = (hidden, weight, bias) if has_bias else (hidden, weight)
    assert_close(torch.autograd.grad(3 * loss, wanted), torch.autograd.grad(3 * expected, wanted))


def test_nll_is_the_mean_of_both_passes() -> None:
    hidden, weight, bias, targets = operands()
    loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=0.1, r_drop=5.0)
    alone = [
        linear_cross_entropy(each[None], weight, bias, targets, label_smoothing=0.1).nll
        for each in hidden
    ]
    assert_close(loss.nll, (alone[0] + alone[1]) / 2)
    assert not loss.nll.requires_grad


@pytest.mark.parametrize("tie", ["none", "all"])
def test_without_dropout_r_drop_adds_nothing(tie: str) -> None:
    model = randomised(tiny_model(tie=tie))
    batch = collate(split_of([([5, 6, 7], [4]), ([8], [9, 10, 4, 5])]), [0, 1])
    plain = batch_loss(model, batch, label_smoothing=0.1)
    twice = batch_loss(model, batch, label_smoothing=0.1, r_drop=5.0)
    assert_close((twice.minimised, twice.nll), (plain.minimised, plain.nll))
    parameters = list(model.parameters())
    assert_close(
        torch.autograd.grad(twice.minimised, parameters),
        torch.autograd.grad(plain.minimised, parameters),
    )


def test_with_dropout_the_passes_differ_and_that_costs() -> None:
    model = randomised(tiny_model(dropout=0.3)).train()
    batch = collate(split_of([([5, 6, 7], [4]), ([8], [9, 10, 4, 5])]), [0, 1])
    found = []
    for r_drop in (1e-9, 5.0):
        torch.manual_seed(0)
        found.append(batch_loss(model, batch, label_smoothing=0.1, r_drop=r_drop).minimised.item())
    assert found[1] > found[0] + 0.01


@pytest.mark.parametrize("piece", [2 * V, 1 << 20])
@pytest.mark.parametrize("has_bias", [True, False])
def test_bf16_is_close_to_fp32(piece: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.PIECE_LOGITS, "cpu", piece)
    hidden, weight, bias, targets = operands()
    used_bias = bias if has_bias else None
    exact = linear_cross_entropy(
        hidden, weight, used_bias, targets, label_smoothing=0.1, r_drop=5.0
    )
    with torch.autocast("cpu", torch.bfloat16):
        rounded = linear_cross_entropy(
            hidden, weight, used_bias, targets, label_smoothing=0.1, r_drop=5.0
        )
    torch.testing.assert_close(rounded.minimised, exact.minimised, rtol=0.02, atol=0.02)
    wanted = (hidden, weight, bias) if has_bias else (hidden, weight)
    for each, other in zip(
        torch.autograd.grad(rounded.minimised, wanted),
        torch.autograd.grad(exact.minimised, wanted),
        strict=True,
    ):
        assert each.dtype == torch.float32
        assert (each - other).norm() < 0.05 * other.norm()
