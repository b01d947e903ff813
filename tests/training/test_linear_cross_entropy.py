"""Output layer and cross-entropy in one function: value and gradients against PyTorch's, and its
pieces.
"""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from mt_cli.training import loss as module
from mt_cli.training.loss import linear_cross_entropy

N, D, V = 7, 5, 11


def operands(
    *, num_tokens: int = N, d_model: int = D, vocab_size: int = V, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden vectors of one pass, weight and bias, which want gradients, and targets."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((1, num_tokens, d_model), (vocab_size, d_model), (vocab_size,))
    hidden, weight, bias = (torch.randn(s, generator=generator).requires_grad_() for s in shapes)
    return hidden, weight, bias, torch.randint(vocab_size, (num_tokens,), generator=generator)


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Few as the tokens here are, they make several pieces, and a piece several blocks."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "PIECE_STEP", 2)
        monkeypatch.setitem(module.BLOCK_LOGITS, "cpu", 3 * V)
        yield


def expected_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
) -> Tensor:
    logits = F.linear(hidden[0], weight, bias)
    return F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")


def gradients(loss: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, tensors)


def assert_close(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


every_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
every_piece = pytest.mark.parametrize("piece", [1, V - 1, V, 2 * V, 3 * V + 1, N * V, 1 << 20])


@every_smoothing
def test_bias_may_be_absent(smoothing: float) -> None:
    hidden, weight, _, targets = operands()
    loss = linear_cross_entropy(hidden, weight, None, targets, label_smoothing=smoothing).minimised
    expected = expected_loss(hidden, weight, None, targets, smoothing)
    assert_close(loss, expected)
    assert_close(gradients(loss, hidden, weight), gradients(expected, hidden, weight))


@pytest.mark.parametrize("scale", [0.0, -2.0, 1 / 4096])
def test_gradients_follow_the_scale_of_what_comes_after(scale: float) -> None:
    hidden, weight, bias, targets = operands()
    loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=0.1).minimised
    expected = expected_loss(hidden, weight, bias, targets, 0.1)
    assert_close(
        gradients(scale * loss, hidden, weight, bias),
        gradients(scale * expected, hidden, weight, bias),
    )


@given(
    num_tokens=st.integers(0, 9),
    d_model=st.integers(1, 6),
    vocab_size=st.integers(1, 9),
    piece=st.integers(1, 40),
    smoothing=st.floats(0, 0.99),
)
def test_any_shape_equals_torch(
    num_tokens: int, d_model: int, vocab_size: int, piece: int, smoothing: float
) -> None:
    hidden, weight, bias, targets = operands(
        num_tokens=num_tokens, d_model=d_model, vocab_size=vocab_size
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(module.PIECE_LOGITS, "cpu", piece)
        loss = linear_cross_entropy(
            hidden, weight, bias, targets, label_smoothing=smoothing
        ).minimised
    expected = expected_loss(hidden, weight, bias, targets, smoothing)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        gradients(loss, hidden, weight, bias),
        gradients(expected, hidden, weight, bias),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_hand_worked_case() -> None:
    # Logits ln 3 and 0: probabilities 3/4 and 1/4; smoothed label 0.9 and 0.1.
    hidden, weight = torch.tensor([[[1.0]]]), torch.tensor([[3.0], [1.0]]).log()
    loss = linear_cross_entropy(hidden, weight, None, torch.tensor([0]), label_smoothing=0.2)
    assert loss.nll.item() == pytest.approx(0.2876820724)
    assert loss.minimised.item() == pytest.approx(0.9 * 0.2876820724 + 0.1 * 1.3862943611)


def test_huge_logits_stay_finite() -> None:
    hidden, weight, bias, targets = operands()
    loss = linear_cross_entropy(hidden * 1e6, weight, bias, targets, label_smoothing=0.1).minimised
    assert loss.isfinite()
    assert torch.cat([g.flatten() for g in gradients(loss, hidden, weight, bias)]).isfinite().all()


def test_bf16_hidden_is_close_to_fp32() -> None:
    hidden, weight, bias, targets = operands(num_tokens=200, d_model=32, vocab_size=100)
    loss = linear_cross_entropy(
        hidden.bfloat16(), weight, bias, targets, label_smoothing=0.1
    ).minimised
    expected = expected_loss(hidden, weight, bias, targets, 0.1)
    torch.testing.assert_close(loss, expected, rtol=5e-3, atol=0)
    errors = [
        ((actual - exact).norm() / exact.norm()).item()
        for actual, exact in zip(
            gradients(loss, hidden, weight, bias),
            gradients(expected, hidden, weight, bias),
            strict=True,
        )
    ]
    assert max(errors) < 0.02


def test_bf16_gradients_are_scaled_exactly() -> None:
    hidden, weight, bias, targets = operands()
    low = hidden.detach().bfloat16().requires_grad_()
    loss = linear_cross_entropy(low, weight, bias, targets, label_smoothing=0.1).minimised
    (whole,) = gradients(loss, low)
    loss = linear_cross_entropy(low, weight, bias, targets, label_smoothing=0.1).minimised
    (share,) = gradients(loss / 3001, low)  # a number that bf16 rounds by 0.18 %
    # Rounded once: to the nearest bf16 of what it should be.
    assert torch.equal(share, (whole.float() / 3001).bfloat16())


def test_bf16_gradients_have_the_types_of_what_they_are_of() -> None:
    hidden, weight, bias, targets = operands()
    low = hidden.detach().bfloat16().requires_grad_()
    loss = linear_cross_entropy(low, weight, bias, targets, label_smoothing=0.1).minimised
    types = [g.dtype for g in gradients(loss, low, weight, bias)]
    assert types == [torch.bfloat16, torch.float32, torch.float32]


def test_no_gradients_are_computed_where_none_are_wanted() -> None:
    hidden, weight, bias, targets = operands()
    with torch.no_grad():
        loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=0.1)
    assert not loss.minimised.requires_grad
    assert_close(loss.minimised, expected_loss(hidden, weight, bias, targets, 0.1).detach())


@every_smoothing
@every_piece
def test_value_nll_and_gradients_equal_torch(
    smoothing: float, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.PIECE_LOGITS, "cpu", piece)
    hidden, weight, bias, targets = operands()
    loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=smoothing)
    expected = expected_loss(hidden, weight, bias, targets, smoothing)
    assert_close(loss.minimised, expected)
    assert_close(loss.nll, expected_loss(hidden, weight, bias, targets, 0.0).detach())
    assert not loss.nll.requires_grad
    assert_close(
        gradients(loss.minimised, hidden, weight, bias), gradients(expected, hidden, weight, bias)
    )
