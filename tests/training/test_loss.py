"""The training objective against PyTorch's own functions: value, gradients, pieces, and R-Drop."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import BACKENDS, randomised, split_of, tiny_model
from torch import Tensor
from torch.nn import functional as F

from mt_cli.data.batching import BatchShape, collate
from mt_cli.training import loss as module
from mt_cli.training.loss import batch_loss, linear_cross_entropy

N, D, V = 7, 5, 11
SPLIT = split_of([([5, 6, 7], [4]), ([8], [9, 10, 4, 5])])
R_DROP = 5.0


def operands(
    *, passes: int = 1, num_tokens: int = N, d_model: int = D, vocab_size: int = V
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden vectors, weight and bias, which want gradients, and targets."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((passes, num_tokens, d_model), (vocab_size, d_model), (vocab_size,))
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


def assert_close(actual: object, expected: object, *, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# One pass


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("piece", [1, V - 1, V, 2 * V, 3 * V + 1, N * V, 1 << 20])
def test_value_nll_and_gradients_equal_torch(
    smoothing: float, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.PIECE_LOGITS, "cpu", piece)
    hidden, weight, bias, targets = operands()
    loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=smoothing)
    expected = expected_loss(hidden, weight, bias, targets, smoothing)
    assert_close(loss.minimized, expected)
    assert_close(loss.nll, expected_loss(hidden, weight, bias, targets, 0.0).detach())
    assert not loss.nll.requires_grad
    assert_close(
        gradients(loss.minimized, hidden, weight, bias), gradients(expected, hidden, weight, bias)
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_bias_may_be_absent(smoothing: float) -> None:
    hidden, weight, _, targets = operands()
    loss = linear_cross_entropy(hidden, weight, None, targets, label_smoothing=smoothing).minimized
    expected = expected_loss(hidden, weight, None, targets, smoothing)
    assert_close(loss, expected)
    assert_close(gradients(loss, hidden, weight), gradients(expected, hidden, weight))


@pytest.mark.parametrize("scale", [0.0, -2.0, 1 / 4096])
def test_gradients_follow_the_scale_of_what_comes_after(scale: float) -> None:
    hidden, weight, bias, targets = operands()
    loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=0.1).minimized
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
        loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=smoothing)
    expected = expected_loss(hidden, weight, bias, targets, smoothing)
    assert_close(loss.minimized, expected, tolerance=1e-4)
    assert_close(
        gradients(loss.minimized, hidden, weight, bias),
        gradients(expected, hidden, weight, bias),
        tolerance=1e-4,
    )


def test_a_hand_worked_case() -> None:
    # Logits ln 3 and 0: probabilities 3/4 and 1/4; smoothed label 0.9 and 0.1.
    hidden, weight = torch.tensor([[[1.0]]]), torch.tensor([[3.0], [1.0]]).log()
    loss = linear_cross_entropy(hidden, weight, None, torch.tensor([0]), label_smoothing=0.2)
    assert loss.nll.item() == pytest.approx(0.2876820724)
    assert loss.minimized.item() == pytest.approx(0.9 * 0.2876820724 + 0.1 * 1.3862943611)


def test_huge_logits_stay_finite() -> None:
    hidden, weight, bias, targets = operands()
    loss = linear_cross_entropy(hidden * 1e6, weight, bias, targets, label_smoothing=0.1).minimized
    assert loss.isfinite()
    assert torch.cat([g.flatten() for g in gradients(loss, hidden, weight, bias)]).isfinite().all()


def test_no_gradients_are_computed_where_none_are_wanted() -> None:
    hidden, weight, bias, targets = operands()
    with torch.no_grad():
        loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=0.1)
    assert not loss.minimized.requires_grad
    assert_close(loss.minimized, expected_loss(hidden, weight, bias, targets, 0.1).detach())


# 16 bits


def test_bf16_hidden_is_close_to_fp32() -> None:
    hidden, weight, bias, targets = operands(num_tokens=200, d_model=32, vocab_size=100)
    low = hidden.bfloat16()
    loss = linear_cross_entropy(low, weight, bias, targets, label_smoothing=0.1).minimized
    expected = expected_loss(hidden, weight, bias, targets, 0.1)
    torch.testing.assert_close(loss, expected, rtol=5e-3, atol=0)
    found = gradients(loss, hidden, weight, bias)
    exact = gradients(expected, hidden, weight, bias)
    for each, other in zip(found, exact, strict=True):
        assert (each - other).norm() < 0.02 * other.norm()


def test_bf16_gradients_are_scaled_exactly() -> None:
    hidden, weight, bias, targets = operands()
    low = hidden.detach().bfloat16().requires_grad_()
    loss = linear_cross_entropy(low, weight, bias, targets, label_smoothing=0.1).minimized
    (whole,) = gradients(loss, low)
    loss = linear_cross_entropy(low, weight, bias, targets, label_smoothing=0.1).minimized
    (share,) = gradients(loss / 3001, low)  # a number that bf16 rounds by 0.18 %
    # Rounded once: to the nearest bf16 of what it should be.
    assert torch.equal(share, (whole.float() / 3001).bfloat16())


def test_bf16_gradients_have_the_types_of_what_they_are_of() -> None:
    hidden, weight, bias, targets = operands()
    low = hidden.detach().bfloat16().requires_grad_()
    loss = linear_cross_entropy(low, weight, bias, targets, label_smoothing=0.1).minimized
    types = [g.dtype for g in gradients(loss, low, weight, bias)]
    assert types == [torch.bfloat16, torch.float32, torch.float32]


# R-Drop's two passes


def expected_r_drop(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    smoothing: float,
    alpha: float,
) -> Tensor:
    """Half of equation 3 of Liang et al. (2021)."""
    total = torch.zeros(())
    for each in hidden:
        total = total + expected_loss(each[None], weight, bias, targets, smoothing)
    first, second = (F.log_softmax(F.linear(each, weight, bias), -1) for each in hidden)
    for one, other in ((first, second), (second, first)):
        total = total + alpha / 2 * F.kl_div(one, other, log_target=True, reduction="sum")
    return total / 2


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.5, R_DROP])
@pytest.mark.parametrize("piece", [1, 2 * V, 6 * V, 1 << 20])
@pytest.mark.parametrize("has_bias", [True, False])
def test_value_and_gradients_of_r_drop_equal_those_of_torch(
    smoothing: float, alpha: float, piece: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.PIECE_LOGITS, "cpu", piece)
    hidden, weight, bias, targets = operands(passes=2)
    used_bias = bias if has_bias else None
    loss = linear_cross_entropy(
        hidden, weight, used_bias, targets, label_smoothing=smoothing, r_drop=alpha
    ).minimized
    expected = expected_r_drop(hidden, weight, used_bias, targets, smoothing=smoothing, alpha=alpha)
    assert_close(loss, expected)
    wanted = (hidden, weight, bias) if has_bias else (hidden, weight)
    assert_close(gradients(3 * loss, *wanted), gradients(3 * expected, *wanted))


def test_nll_of_r_drop_is_the_mean_of_both_passes() -> None:
    hidden, weight, bias, targets = operands(passes=2)
    loss = linear_cross_entropy(hidden, weight, bias, targets, label_smoothing=0.1, r_drop=R_DROP)
    alone = [expected_loss(each[None], weight, bias, targets, 0.0) for each in hidden]
    assert_close(loss.nll, ((alone[0] + alone[1]) / 2).detach())
    assert not loss.nll.requires_grad


@pytest.mark.parametrize("piece", [2 * V, 1 << 20])
@pytest.mark.parametrize("has_bias", [True, False])
def test_r_drop_in_bf16_is_close_to_fp32(
    piece: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.PIECE_LOGITS, "cpu", piece)
    hidden, weight, bias, targets = operands(passes=2)
    used_bias = bias if has_bias else None
    exact, rounded = (
        linear_cross_entropy(
            each, weight, used_bias, targets, label_smoothing=0.1, r_drop=R_DROP
        ).minimized
        for each in (hidden, hidden.bfloat16())
    )
    assert_close(rounded, exact, tolerance=0.02)
    wanted = (hidden, weight, bias) if has_bias else (hidden, weight)
    for each, other in zip(gradients(rounded, *wanted), gradients(exact, *wanted), strict=True):
        assert (each - other).norm() < 0.05 * other.norm()


# Batches


@pytest.mark.parametrize("output_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
def test_batch_loss_counts_real_tokens_only(tie: str, output_bias: bool) -> None:
    model = randomised(tiny_model(tie=tie, output_bias=output_bias))
    batch = collate(SPLIT, [0, 1])
    loss = batch_loss(model, batch, label_smoothing=0.1).minimized
    logits = model(batch.src_ids, batch.tgt_in)
    expected = F.cross_entropy(
        logits.transpose(1, 2), batch.tgt_out, ignore_index=0, label_smoothing=0.1, reduction="sum"
    )
    assert_close(loss, expected)
    assert_close(gradients(loss, *model.parameters()), gradients(expected, *model.parameters()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [0.0, 2.0], ids=["plain", "R-Drop"])
def test_empty_rows_and_wider_padding_change_nothing(backend: str, alpha: float) -> None:
    model = randomised(tiny_model(backend, decoder_layers=2))
    shape = BatchShape(rows=5, src_width=6, tgt_width=7)
    exact, padded = (
        batch_loss(model, collate(SPLIT, [0, 1], each), label_smoothing=0.1, r_drop=alpha)
        for each in (None, shape)
    )
    assert_close((padded.minimized, padded.nll), (exact.minimized, exact.nll))
    parameters = list(model.parameters())
    assert_close(gradients(padded.minimized, *parameters), gradients(exact.minimized, *parameters))


@pytest.mark.parametrize("tie", ["none", "all"])
def test_targets_that_only_pad_a_batch_change_nothing(tie: str) -> None:
    model = randomised(tiny_model(tie=tie, output_bias=False))
    batch = collate(split_of([([5, 6, 7], [4] * 6), ([8], [9, 10, 4])]), [0, 1])
    padded = batch.with_targets_padded()
    assert len(padded.targets) > len(batch.targets)
    of_batch, of_padded = (batch_loss(model, b, label_smoothing=0.1) for b in (batch, padded))
    assert_close((of_padded.minimized, of_padded.nll), (of_batch.minimized, of_batch.nll))
    parameters = list(model.parameters())
    assert_close(
        gradients(of_padded.minimized, *parameters), gradients(of_batch.minimized, *parameters)
    )


@pytest.mark.parametrize("tie", ["none", "all"])
def test_without_dropout_r_drop_adds_nothing(tie: str) -> None:
    model = randomised(tiny_model(tie=tie))
    batch = collate(SPLIT, [0, 1])
    plain = batch_loss(model, batch, label_smoothing=0.1)
    twice = batch_loss(model, batch, label_smoothing=0.1, r_drop=R_DROP)
    assert_close((twice.minimized, twice.nll), (plain.minimized, plain.nll))
    parameters = list(model.parameters())
    assert_close(gradients(twice.minimized, *parameters), gradients(plain.minimized, *parameters))


def test_with_dropout_the_passes_differ_and_that_costs() -> None:
    model = randomised(tiny_model(dropout=0.3)).train()
    batch = collate(SPLIT, [0, 1])
    found = []
    for r_drop in (1e-9, R_DROP):
        torch.manual_seed(0)
        found.append(batch_loss(model, batch, label_smoothing=0.1, r_drop=r_drop).minimized.item())
    assert found[1] > found[0] + 0.01
