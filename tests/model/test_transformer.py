"""Attention against PyTorch's own, and what its weights are."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.config.schema import ModelConfig
from mt_cli.model.numpy_model import sinusoids
from mt_cli.model.transformer import MultiHeadAttention, as_bias, attention_weights, causal_mask

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


def twins(num_heads: int) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Ours and PyTorch's, with the same random weights."""
    reference = nn.MultiheadAttention(12, num_heads, batch_first=True, dtype=torch.float64)
    reference.load_state_dict(
        {name: random(*p.shape, seed=len(name)) for name, p in reference.state_dict().items()}
    )
    config = ModelConfig(d_model=12, num_heads=num_heads, attention_dropout=0.0)
    ours = MultiHeadAttention(config).double()
    ours.load_state_dict(reference.state_dict())
    return ours, reference


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return attention_weights(q, k, bias) @ v


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@every_mask
def test_attention_equals_torch_and_its_weights_are_zero_exactly_where_hidden(mask: Tensor) -> None:
    q, k, v = queries_keys_values()
    visible = mask.expand(B, H, T, S)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    assert_same(attention(q, k, v, as_bias(mask)), expected)
    assert torch.equal(attention_weights(q, k, as_bias(mask)) > 0, visible)


def test_attention_of_a_hand_worked_case() -> None:
    # One query that matches the first key by ln 3 more than the second: weights 3/4 and 1/4.
    q = torch.tensor([[2 * math.log(3), 0.0, 0.0, 0.0]])
    k = torch.tensor([[1.0, 5.0, 0.0, 0.0], [0.0, 0.0, 7.0, 0.0]])
    v = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    out = attention(q, k, v, torch.zeros(2))
    torch.testing.assert_close(out, torch.tensor([[3.0, 2.0]]))


@pytest.mark.parametrize("num_heads", [1, 3, 12])
def test_any_number_of_heads_and_its_gradients_equal_torch(num_heads: int) -> None:
    ours, reference = twins(num_heads)
    x, memory, mask = random(B, T, 12), random(B, S, 12, seed=1), MASKS["padding"]
    found = ours(x, as_bias(mask), memory=memory)
    expected = reference(x, memory, memory, key_padding_mask=~mask[:, 0, 0])[0]
    assert_same(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    of_ours, of_reference = (
        {name: p.grad for name, p in each.named_parameters()} for each in (ours, reference)
    )
    torch.testing.assert_close(of_ours, of_reference, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("position", [0, 57, 255])
@pytest.mark.parametrize("column", [0, 1, 63, 126])
def test_sinusoids_equal_the_formula_of_the_paper(position: int, column: int) -> None:
    pair = column // 2
    angle = position / 10000 ** (2 * pair / 128)
    expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    assert sinusoids(256, 128)[position, column].item() == pytest.approx(expected, abs=1e-6)
