"""Dropout whose random numbers cost little on a CPU.

Knows one tensor at a time.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mt_cli.model.fused import add_scaled


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
        if self._draws_bytes(input):
            return _ByteDropout.apply(input, self.p)  # type: ignore[no-any-return, no-untyped-call]
        return super().forward(input)

    def add_to(self, x: Tensor, input: Tensor) -> Tensor:
        """`x` plus `input` of the same shape, dropped out while training."""
        if self.training and self.p and self._draws_bytes(input):
            return add_scaled(x, input, _kept(input, self.p), scale=_scale(self.p))
        total: Tensor = x + self(input)
        return total

    def _draws_bytes(self, input: Tensor) -> bool:
        return bool(input.is_cpu and 0 < round(self.p * 256) < 256)


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:  # noqa: ANN401
        kept = _kept(x, p)
        ctx.save_for_backward(kept)
        ctx.scale = _scale(p)
        # Two products: as one factor, bf16 would round the scale, by up to 0.4 %, for every element alike.
        return kept.to(x.dtype).mul_(x).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (kept,) = ctx.saved_tensors
        return kept.to(grad.dtype).mul_(grad).mul_(ctx.scale), None


def _kept(x: Tensor, p: float) -> Tensor:
    """Bytes of the shape of `x`: 0 with probability `p`, else 1."""
    threshold = round(p * 256)
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
    draws.random_(-(2**63), None)  # the whole range, or one bit of each draw would stay zero
    bytes_ = draws.view(torch.uint8)[: x.numel()].view(x.shape)
    # Whether each is at least `threshold`. Comparing would take ten times as long.
    return bytes_.clamp_(threshold - 1, threshold).sub_(threshold - 1)


def _scale(p: float) -> float:
    """What keeps the mean, with `p` as it is rounded."""
    return 256 / (256 - round(p * 256))
