"""Masks as numbers, and keys padded to whole vectors: nothing of it may show."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mt_cli.model.cached_decoder import SIMD_FLOATS, pad_bias, pad_keys
from mt_cli.model.cpu_kernels import Dropout
from mt_cli.model.transformer import ScaledDotProductAttention, as_bias

SIZES = [1, SIMD_FLOATS - 1, SIMD_FLOATS, SIMD_FLOATS + 1, 3 * SIMD_FLOATS]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def some_mask(num_keys: int) -> Tensor:
    """(2, 1, 1, S): all of the first sentence's keys may be attended, every other one of the
    second's.
    """
    mask = torch.ones(2, 1, 1, num_keys, dtype=torch.bool)
    mask[1, ..., 1::2] = False
    return mask


@pytest.mark.parametrize("num_keys", SIZES)
def test_padded_attention_equals_torch(num_keys: int) -> None:
    q, k, v = (
        random(2, 3, 4, 8),
        random(2, 3, num_keys, 8, seed=1),
        random(2, 3, num_keys, 8, seed=2),
    )
    mask = some_mask(num_keys)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    ours = ScaledDotProductAttention(Dropout(0.0))(q, *pad_keys(k, v), pad_bias(as_bias(mask)))
    torch.testing.assert_close(ours, expected)
