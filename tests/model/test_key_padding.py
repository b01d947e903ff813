"""Masks as numbers, and keys padded to whole vectors: nothing of it may show."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.model.attention import ScaledDotProductAttention
from mt_cli.model.cached_decoder import SIMD_FLOATS, pad_bias, pad_keys
from mt_cli.model.masks import as_bias

SIZES = [1, SIMD_FLOATS - 1, SIMD_FLOATS, SIMD_FLOATS + 1, 3 * SIMD_FLOATS]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def some_mask(num_keys: int) -> Tensor:
    """(2, 1, 1, S): all of the first sentence's keys may be attended, every other one of the second's."""
    mask = torch.ones(2, 1, 1, num_keys, dtype=torch.bool)
    mask[1, ..., 1::2] = False
    return mask


def test_bias_is_zero_where_may_be_attended_and_minus_infinity_elsewhere() -> None:
    assert as_bias(torch.tensor([[True, False], [False, True]])).tolist() == [
        [0, -torch.inf],
        [-torch.inf, 0],
    ]


@given(st.integers(1, 70))
def test_padded_keys_fill_a_vector_with_zeros_after_them(num_keys: int) -> None:
    k, v = random(2, 3, num_keys, 5), random(2, 3, num_keys, 5, seed=1)
    for padded, real in zip(pad_keys(k, v), (k, v), strict=True):
        assert padded.shape[2] == max(num_keys, SIMD_FLOATS)
        assert torch.equal(padded[:, :, :num_keys], real)
        assert not padded[:, :, num_keys:].any()


@pytest.mark.parametrize("num_keys", SIZES)
def test_padded_bias_hides_all_that_was_added(num_keys: int) -> None:
    bias = as_bias(some_mask(num_keys))
    padded = pad_bias(bias)
    assert padded.shape[-1] == max(num_keys, SIMD_FLOATS)
    assert torch.equal(padded[..., :num_keys], bias)
    assert (padded[..., num_keys:] == -torch.inf).all()


@pytest.mark.parametrize("num_keys", SIZES)
def test_padded_attention_equals_torch(num_keys: int) -> None:
    q, k, v = random(2, 3, 4, 8), random(2, 3, num_keys, 8, seed=1), random(2, 3, num_keys, 8, seed=2)
    mask = some_mask(num_keys)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    ours = ScaledDotProductAttention(nn.Identity())(q, *pad_keys(k, v), pad_bias(as_bias(mask)))
    torch.testing.assert_close(ours, expected)
