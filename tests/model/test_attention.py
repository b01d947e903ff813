"""Attention against PyTorch's own, and what its weights are."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.config.schema import ModelConfig
from mt_cli.model.scratch import SIMD_FLOATS, pad_bias, pad_keys
from mt_cli.model.transformer import (
    MultiHeadAttention,
    PositionalEncoding,
    as_bias,
    attention_weights,
    causal_mask,
    padding_mask,
    sinusoids,
)

B, H, T, S, K = 2, 3, 4, 5, 6
CPU = torch.device("cpu")
MASKS = {
    "nothing hidden": torch.ones(S, dtype=torch.bool),
    "padding": torch.tensor([[True] * 5, [True, True, False, False, False]])[:, None, None, :],
    "causal": causal_mask(5, device=CPU)[:T],
    "causal and padding": causal_mask(5, device=CPU)[:T]
    & torch.tensor([[True] * 5, [True, True, False, False, False]])[:, None, None, :],
}
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def queries_keys_values() -> tuple[Tensor, Tensor, Tensor]:
    return random(B, H, T, K, seed=1), random(B, H, S, K, seed=2), random(B, H, S, K, seed=3)


def twins(
    *, d_model: int = 12, num_heads: int = 3
) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Ours and PyTorch's, with the same random weights."""
    reference = nn.MultiheadAttention(d_model, num_heads, batch_first=True, dtype=torch.float64)
    reference.load_state_dict(
        {name: random(*p.shape, seed=len(name)) for name, p in reference.state_dict().items()}
    )
    config = ModelConfig(d_model=d_model, num_heads=num_heads, attention_dropout=0.0)
    ours = MultiHeadAttention(config).double()
    ours.load_state_dict(reference.state_dict())
    return ours, reference


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return attention_weights(q, k, bias) @ v


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@every_mask
def test_attention_equals_torch(mask: Tensor) -> None:
    q, k, v = queries_keys_values()
    assert_same(
        attention(q, k, v, as_bias(mask)),
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(B, H, T, S)),
    )


def test_attention_of_a_hand_worked_case() -> None:
    # One query that matches the first key by ln 3 more than the second: weights 3/4 and 1/4.
    q = torch.tensor([[2 * math.log(3), 0.0, 0.0, 0.0]])
    k = torch.tensor([[1.0, 5.0, 0.0, 0.0], [0.0, 0.0, 7.0, 0.0]])
    v = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    out = attention(q, k, v, torch.zeros(2))
    torch.testing.assert_close(out, torch.tensor([[3.0, 2.0]]))


@every_mask
def test_weights_are_exactly_zero_where_hidden_and_only_there(mask: Tensor) -> None:
    q, k, _ = queries_keys_values()
    weights = attention_weights(q, k, as_bias(mask))
    assert torch.equal(weights > 0, mask.expand(B, H, T, S))
    assert weights[~mask.expand(B, H, T, S)].abs().sum() == 0


def test_a_query_that_may_attend_to_nothing_gives_nan() -> None:
    q, k, v = queries_keys_values()
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[2] = False
    is_nan = attention(q, k, v, as_bias(mask)).isnan().all(-1)  # (B, H, T)
    assert torch.equal(is_nan, torch.tensor([False, False, True, False]).expand(B, H, T))


def test_attention_passes_gradcheck() -> None:
    q, k, v = (x[:1, :1].requires_grad_() for x in queries_keys_values())
    assert torch.autograd.gradcheck(
        lambda q, k, v: attention(q, k, v, as_bias(MASKS["causal"])), (q, k, v)
    )


@pytest.mark.parametrize("num_keys", [1, SIMD_FLOATS - 1, SIMD_FLOATS, SIMD_FLOATS + 1])
def test_attention_over_padded_keys_equals_torch(num_keys: int) -> None:
    q = random(2, 3, 4, 8)
    k, v = random(2, 3, num_keys, 8, seed=1), random(2, 3, num_keys, 8, seed=2)
    mask = torch.ones(2, 1, 1, num_keys, dtype=torch.bool)
    mask[1, ..., 1::2] = False
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_same(attention(q, *pad_keys(k, v), pad_bias(as_bias(mask))), expected)


@pytest.mark.parametrize("num_heads", [1, 3, 12])
def test_any_number_of_heads_equals_torch(num_heads: int) -> None:
    ours, reference = twins(num_heads=num_heads)
    x, memory, mask = random(B, T, 12), random(B, S, 12, seed=1), MASKS["padding"]
    expected = reference(x, memory, memory, key_padding_mask=~mask[:, 0, 0])[0]
    assert_same(ours(x, as_bias(mask), memory=memory), expected)


def test_gradients_equal_torch() -> None:
    ours, reference = twins()
    x, memory = random(B, T, 12), random(B, S, 12, seed=1)
    ours(x, as_bias(MASKS["nothing hidden"]), memory=memory).square().sum().backward()
    reference(x, memory, memory)[0].square().sum().backward()
    torch.testing.assert_close(
        {name: p.grad for name, p in ours.named_parameters()},
        {name: p.grad for name, p in reference.named_parameters()},
        rtol=1e-10,
        atol=1e-10,
    )


def test_padding_mask_is_true_at_real_tokens() -> None:
    ids = torch.tensor([[5, 6, 3], [7, 0, 0]])
    assert padding_mask(ids, pad_id=0).tolist() == [[True, True, True], [True, False, False]]


def test_causal_mask_lets_each_position_see_itself_and_the_past() -> None:
    mask = causal_mask(3, device=torch.device("cpu"))
    assert mask.tolist() == [[True, False, False], [True, True, False], [True, True, True]]


@pytest.mark.parametrize("position", [0, 57, 255])
@pytest.mark.parametrize("column", [0, 1, 63, 126])
def test_sinusoids_equal_the_formula_of_the_paper(position: int, column: int) -> None:
    pair = column // 2
    angle = position / 10000 ** (2 * pair / 128)
    expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    assert sinusoids(256, 128)[position, column].item() == pytest.approx(expected, abs=1e-6)


def test_waves_are_neither_parameters_nor_saved() -> None:
    positions = PositionalEncoding(5, 4, is_learned=False)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}
