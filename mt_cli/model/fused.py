"""Steps of a layer as one operation each, with a gradient of its own: fewer passes over a CPU's memory.

The tests compare each with plain PyTorch. Knows tensors, nothing of layers.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def biased_softmax(scores: Tensor, bias: Tensor, *, scale: float) -> Tensor:
    """softmax(`bias` + `scale` · `scores`) over the last dimension; `bias` broadcasts to `scores`."""
    if scores.is_cpu and scores.dtype == torch.bfloat16:
        return _BF16Softmax.apply(scores, bias, scale)  # type: ignore[no-any-return, no-untyped-call]
    return torch.add(bias, scores, alpha=scale).softmax(-1)


def add_scaled(x: Tensor, y: Tensor, kept: Tensor, *, scale: float) -> Tensor:
    """`x` + `scale` · `y` · `kept`, all of one shape; `kept` holds bytes."""
    return _AddScaled.apply(x, y, kept, scale)  # type: ignore[no-any-return, no-untyped-call]


class _BF16Softmax(torch.autograd.Function):
    """Computes in fp32, rounds at the end, and keeps the rounded weights for the backward pass.

    On a CPU, PyTorch's softmax of bf16 and its gradient take three times as long as in fp32, conversions
    counted, where rows are as short as a sentence.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, bias: Tensor, scale: float) -> Tensor:  # noqa: ANN401
        weights = torch.add(bias, scores.float(), alpha=scale).softmax(-1).to(scores.dtype)
        ctx.save_for_backward(weights)
        ctx.scale = scale
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        weights = ctx.saved_tensors[0].float()
        of_scores = torch._softmax_backward_data(grad.float(), weights, -1, weights.dtype)
        return of_scores.mul_(ctx.scale).to(grad.dtype), None, None


class _AddScaled(torch.autograd.Function):
    """Keeps one byte for each element, and computes in the wider type of x and y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, kept: Tensor, scale: float) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(kept)
        ctx.scale, ctx.x_dtype, ctx.y_dtype = scale, x.dtype, y.dtype
        wide = torch.promote_types(x.dtype, y.dtype)
        return torch.addcmul(x.to(wide), y.to(wide), kept.to(wide), value=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401
        (kept,) = ctx.saved_tensors
        of_y = kept.to(grad.dtype).mul_(grad).mul_(ctx.scale)
        return grad.to(ctx.x_dtype), of_y.to(ctx.y_dtype), None, None
