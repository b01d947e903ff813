"""Faster CPU versions of parts of a layer: dropout, softmax, residual sums, linear layers.

Tests compare each one with plain PyTorch.
"""

import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Dropout(nn.Dropout):
    """Zero each element with probability `p`, scale the others by 1/(1-p) (Srivastava et al. 2014).

    On a CPU, PyTorch draws one number per element, which takes nearly half of a training step. Here
    each 64-bit draw decides eight elements, so `p` is rounded to a multiple of 1/256. Rates that
    would become 0 or 1 are left to PyTorch.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply dropout to `input` (any shape) in training mode."""
        if not self.training or self.p == 0:
            return input
        if self._draws_bytes(input):
            return _ByteDropout.apply(input, self.p)  # type: ignore[no-untyped-call]
        return super().forward(input)

    def add_to(self, x: Tensor, input: Tensor) -> Tensor:
        """`x` plus `input` of the same shape, with dropout on `input` in training mode."""
        if self.training and self.p and self._draws_bytes(input):
            return add_scaled(x, input, _keep_mask(input, self.p), scale=_scale(self.p))
        return x + self(input)

    def _draws_bytes(self, input: Tensor) -> bool:
        return bool(input.is_cpu and 0 < round(self.p * 256) < 256)


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:  # noqa: ANN401
        kept = _keep_mask(x, p)
        ctx.save_for_backward(kept)
        ctx.scale = _scale(p)
        # Two products: in one factor, bf16 would round the scale by up to 0.4 % for all elements.
        return kept.to(x.dtype).mul_(x).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (kept,) = ctx.saved_tensors
        return kept.to(grad.dtype).mul_(grad).mul_(ctx.scale), None


def _keep_mask(x: Tensor, p: float) -> Tensor:
    """Bytes in the shape of `x`: 0 with probability `p`, else 1."""
    threshold = round(p * 256)
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
    draws.random_(-(2**63), None)  # the full range; otherwise one bit of each draw stays zero
    bytes_ = draws.view(torch.uint8)[: x.numel()].view(x.shape)
    # 1 where a byte is at least `threshold`; a comparison would take ten times as long.
    return bytes_.clamp_(threshold - 1, threshold).sub_(threshold - 1)


def _scale(p: float) -> float:
    """1 / (1 - p) for the rounded p."""
    return 256 / (256 - round(p * 256))


def bf16_softmax(scores: Tensor, bias: Tensor, scale: float) -> Tensor:
    """softmax(`bias` + `scale` · `scores`) over the last dimension; `bias` broadcasts to `scores`.

    It computes in fp32, rounds at the end, and keeps the rounded weights for the backward pass. For
    rows as short as a sentence, PyTorch's bf16 softmax and its gradient take three times as long on
    a CPU as fp32 with conversions.
    """
    return _BF16Softmax.apply(scores, bias, scale)  # type: ignore[no-untyped-call]


def add_scaled(x: Tensor, y: Tensor, kept: Tensor, *, scale: float) -> Tensor:
    """`x` + `scale` · `y` · `kept`, all of the same shape; `kept` has bytes."""
    return _AddScaled.apply(x, y, kept, scale)  # type: ignore[no-untyped-call]


class _BF16Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, bias: Tensor, scale: float) -> Tensor:  # noqa: ANN401
        weights = torch.add(bias.float(), scores.float(), alpha=scale).softmax(-1).to(scores.dtype)
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
    """Saves only a byte per element for the backward pass; computes in the wider dtype."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: Tensor,
        y: Tensor,
        kept: Tensor,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        ctx.x_dtype = x.dtype
        ctx.y_dtype = y.dtype
        wide = torch.promote_types(x.dtype, y.dtype)
        return torch.addcmul(x.to(wide), y.to(wide), kept.to(wide), value=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401
        (kept,) = ctx.saved_tensors
        of_y = kept.to(grad.dtype).mul_(grad).mul_(ctx.scale)
        return grad.to(ctx.x_dtype), of_y.to(ctx.y_dtype), None, None


CAN_PACK = torch._C._has_mkldnn and platform.machine() in ("x86_64", "AMD64")
"""Whether PyTorch can multiply by a `PackedLinear`."""
ROWS_TO_PACK_FOR = 256


class PackedLinear(nn.Linear):
    """A linear layer with a copy of its matrix in oneDNN's packed layout, for inference in fp32.

    PyTorch's own product (MKL) repacks the matrix every time. For the output layer, which has the
    largest matrix, it takes a fifth longer (docs/lab/speed.md).
    """

    def __init__(self, linear: nn.Linear) -> None:
        """Share the parameters of `linear`, which must not change any more."""
        super().__init__(linear.in_features, linear.out_features, device="meta")
        self.weight = linear.weight
        self.bias = linear.bias
        matrix = linear.weight.detach().contiguous()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(matrix, ROWS_TO_PACK_FOR)

    def forward(self, input: Tensor) -> Tensor:
        """Map `input` (…, in) to (…, out)."""
        operation = torch.ops.mkldnn._linear_pointwise
        output: Tensor = operation(input, self._packed, self.bias, "none", [], "")
        return output


PADDING = 16
"""Extra numbers per row: rows whose length is a power of two would compete for the same cache
lines.
"""


def transpose_weights_(model: nn.Module) -> None:
    """Store each matrix (out, in) as (in, out), which products with few rows read faster.

    A product with a hundred rows takes a seventh less time (docs/lab/speed.md). Embeddings are
    unchanged, because their rows are looked up. An output layer tied to an embedding gets its own
    copy, unless it is a `PackedLinear`.
    """
    embeddings = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    for module in model.modules():
        for name, matrix in list(module.named_parameters(recurse=False)):
            is_linear = isinstance(module, nn.Linear) and name == "weight"
            if isinstance(module, PackedLinear) or not (is_linear or name == "in_proj_weight"):
                continue
            if id(matrix) in embeddings:
                setattr(module, name, nn.Parameter(_transposed(matrix)))
            else:
                matrix.data = _transposed(matrix)


def _transposed(matrix: Tensor) -> Tensor:
    """A copy of `matrix` (out, in) with the memory layout (in, out)."""
    num_out, num_in = matrix.shape
    padded = torch.empty(num_in, num_out + PADDING, dtype=matrix.dtype, device=matrix.device)
    return padded[:, :num_out].copy_(matrix.detach().t()).t()
