"""What losses share that compute their gradients in the forward pass, while the logits are in memory.

Letters: N tokens, D d_model, V target vocabulary, P tokens of a piece.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CHUNK_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 28}
"""Logits computed at a time: few enough for a CPU's cache, enough to keep a GPU busy."""
PIECE_STEP = 32
"""Piece sizes are multiples of this many tokens, so that there are few sizes."""


def piece_size(num_tokens: int, *, most: int) -> int:
    """Tokens per piece when `num_tokens` are split into equal pieces of about `most` tokens.

    Rounded up to a multiple of `PIECE_STEP`, so it exceeds `most` by less than that.
    """
    num_pieces = max(1, -(-num_tokens // max(1, most)))
    return max(1, -(-num_tokens // (num_pieces * PIECE_STEP))) * PIECE_STEP


def fill_up(rows: Tensor, size: int) -> Tensor:
    """`rows` (..., n, D) with zeros after them, (..., `size`, D)."""
    missing = size - rows.shape[-2]
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


class EarlyGradients(torch.autograd.Function):
    """Maps (hidden, weight, bias, ...) to (loss, nll); a subclass's `forward` ends with `keep`."""

    @staticmethod
    def keep(ctx: Any, nll: Tensor, *grads: Tensor, bias: Tensor | None, weight: Tensor) -> None:  # noqa: ANN401
        """Save `grads`, those of hidden (..., N, D), `weight` (V, D) and `bias` (V,), for `backward`."""
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(nll)
        ctx.has_bias, ctx.weight_dtype = bias is not None, weight.dtype

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """The saved gradients times `grad`; None for the other inputs."""
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        return (
            (grad_hidden.float() * grad).to(grad_hidden.dtype),  # rounded last, so that `grad` is not
            (grad_weight * grad).to(ctx.weight_dtype),
            grad_bias * grad if ctx.has_bias else None,
            *(None,) * (len(ctx.needs_input_grad) - 3),
        )


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add `a` (V, N) times `b` (N, D) to `total` (V, D), which stays in fp32."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
