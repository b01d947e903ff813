"""Dropout whose random numbers cost little on a CPU.

Knows one tensor at a time.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """Zero each element with probability `p`, scale the others by 1/(1-p) (Srivastava et al. 2014).

    On a CPU, PyTorch draws one number per element, which takes nearly half of a training step.
    Here each 64-bit draw decides eight elements, so `p` is rounded to a multiple of 1/256 there (unless
    that were 0 or 1: such rates are left to PyTorch).
    """

    def forward(self, input: Tensor) -> Tensor:
        """`input`, of any shape, dropped out while training."""
        if not self.training or self.p == 0:
            return input
        if input.device.type == "cpu" and 0 < round(self.p * 256) < 256:
            return _ByteDropout.apply(input, self.p)  # type: ignore[no-any-return, no-untyped-call]
        return super().forward(input)


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:  # noqa: ANN401
        threshold = round(p * 256)
        scale = 256 / (256 - threshold)
        draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
        draws.random_(-(2**63), None)  # the whole range, or one bit of each draw would stay zero
        kept = draws.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        # In fp32 at least: bf16 would round the scale, by up to 0.4 % and the same for every element.
        factor = kept.to(torch.promote_types(x.dtype, torch.float32)).mul_(scale)
        ctx.save_for_backward(factor)
        return (x * factor).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (factor,) = ctx.saved_tensors
        return (grad * factor).to(grad.dtype), None
