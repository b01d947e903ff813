"""Dropout whose random numbers cost little on a CPU.

Knows one tensor at a time.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """Zero each element with probability `p`, scale the others by 1/(1-p) (Srivastava et al. 2014).

    On a CPU, PyTorch draws one number per element, which takes nearly half of a training step.
    Here each 64-bit draw decides eight elements, so `p` is rounded to a multiple of 1/256 there (unless
    that were 0 or 1: such rates are left to PyTorch).
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """`x`, of any shape, dropped out while training."""
        if not self.training or self.p == 0:
            return x
        if x.device.type == "cpu" and 0 < round(self.p * 256) < 256:
            return _ByteDropout.apply(x, self.p)  # type: ignore[no-any-return, no-untyped-call]
        return F.dropout(x, self.p)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"p={self.p}"


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:  # noqa: ANN401
        threshold = min(255, round(p * 256))  # 256 would drop everything
        scale = 256 / (256 - threshold)
        draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(
            -(2**63), None
        )  # every bit random
        kept = draws.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        factor = kept.to(x.dtype).mul_(scale)
        ctx.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (factor,) = ctx.saved_tensors
        return grad * factor, None
