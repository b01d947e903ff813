"""Output layer and loss in one function, so that the logits of a whole batch never exist at once.

It computes its gradients in the forward pass, piece by piece, while the logits are in memory.
Letters: K passes, N tokens, D d_model, V target vocabulary, P tokens of a piece, n of them real, R tokens of
a block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mt_cli.training.r_drop import divergence

CHUNK_LOGITS = {"cpu": 1 << 23, "cuda": 1 << 28}
"""Logits computed at a time: few enough for a CPU's cache, enough to keep a GPU busy."""
BLOCK_LOGITS = 1 << 19
"""Logits that a CPU works on at a time between two products: few enough for the caches of its cores."""
PIECE_STEP = 32
"""Piece sizes are multiples of this many tokens, so that there are few sizes."""


class LinearCrossEntropy(torch.autograd.Function):
    """Maps `hidden` (K, N, D), `weight` (V, D), `bias` (V,) and `targets` (N,) to (loss, nll).

    Both are sums over the tokens and means over the passes. With p = softmax(z) and smoothed label q, the
    loss is -Σ q log p and its gradient in z is p - q. Every pass over all logits is slow, so p is never
    divided by its sum. The even part of q, ε/V on every token, takes D numbers per token, not V: the mean of
    z over V is h times the mean of the weight's rows. With two passes, R-Drop's divergence joins the loss.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        r_drop: float,
        needs_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        """The loss, and the nll, which has no gradient. `r_drop` is R-Drop's alpha; without it, it is 0."""
        (K, N, D), V = hidden.shape, len(weight)
        size = piece_size(N, most=CHUNK_LOGITS[hidden.device.type] // (K * V))
        grad_hidden = torch.empty_like(hidden) if needs_grad else hidden
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_grad else weight
        grad_bias = torch.zeros_like(weight[:, 0], dtype=torch.float32)
        loss, nll = hidden.new_zeros(2, dtype=torch.float32)
        low_weight, mean_row = weight.to(hidden.dtype), weight.mean(0).to(hidden.dtype)  # (V, D), (D,)
        mean_bias = 0.0 if bias is None else bias.mean()
        for begin in range(0, N, size):
            piece = slice(begin, min(begin + size, N))
            n = piece.stop - begin
            h = fill_up(hidden[:, piece], size).flatten(0, 1)  # (K P, D)
            logits = (h @ low_weight.mT).view(K, size, V)
            share = h.new_zeros(K, size, 1, dtype=torch.float32)
            for rows in _blocks(logits[:, :n]):
                y = targets[piece][rows, None].expand(K, -1, -1)  # (K, R, 1)
                z = logits[:, rows].float()
                if bias is not None:
                    z += bias
                difference = z[0] - z[1] if r_drop else None
                of = _exponentials(z, y)
                nll += (of.log_total - of.logit_y).sum()
                loss += (of.log_total - (1 - label_smoothing) * of.logit_y).sum()
                unscaled = of.unscaled
                if difference is not None:
                    apart, unscaled = divergence(unscaled, of.total, difference, alpha=r_drop)
                    loss += apart
                if needs_grad:
                    unscaled.scatter_add_(-1, y, of.total * (label_smoothing - 1))
                    share[:, rows] = 1 / of.total
                    if bias is not None:
                        grad_bias += (unscaled.mT @ share[:, rows]).sum(0).squeeze(1)
                    logits[:, rows] = unscaled
            loss -= label_smoothing * ((h @ mean_row).view(K, size)[:, :n].float() + mean_bias).sum()
            if needs_grad:
                logits[:, n:] = 0
                unscaled = logits.flatten(0, 1)  # (K P, V)
                product = (unscaled @ low_weight).view(K, size, D) * share
                grad_hidden[:, piece] = product[:, :n].sub_(mean_row, alpha=label_smoothing)
                _add_product(grad_weight, unscaled.mT, (h * share.view(-1, 1)).to(h.dtype))
        if needs_grad:
            even = label_smoothing / V
            grad_weight.sub_(hidden.float().sum((0, 1)), alpha=even)
            grad_bias.sub_(even * K * N)
        loss, nll = loss / K, nll / K
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        ctx.has_bias, ctx.weight_dtype = bias is not None, weight.dtype
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """The saved gradients, which are sums over the passes, times `grad`; None for the other inputs."""
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        grad = grad / len(grad_hidden)
        return (
            (grad_hidden.float() * grad).to(grad_hidden.dtype),  # rounded last, so that `grad` is not
            (grad_weight * grad).to(ctx.weight_dtype),
            grad_bias * grad if ctx.has_bias else None,
            *(None,) * (len(ctx.needs_input_grad) - 3),
        )


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


def _blocks(logits: Tensor) -> Iterator[slice]:
    """Tokens of `logits` (K, n, V) that go together through the passes over them."""
    K, n, V = logits.shape
    size = max(1, BLOCK_LOGITS // (K * V)) if logits.is_cpu else n
    return (slice(begin, min(begin + size, n)) for begin in range(0, n, size))


@dataclass(frozen=True)
class _Exponentials:
    """What is known of R tokens, in each of K passes, with V logits each."""

    unscaled: Tensor
    """(K, R, V), fp32: the probabilities, times `total`."""
    total: Tensor
    """(K, R, 1)."""
    log_total: Tensor
    """(K, R, 1): log of the sum of exp of the logits."""
    logit_y: Tensor
    """(K, R, 1): logits of the labels."""


def _exponentials(z: Tensor, y: Tensor) -> _Exponentials:
    """Of the logits `z` (K, R, V), which are overwritten, with labels `y` (K, R, 1)."""
    logit_y = z.gather(-1, y)
    peak = z.amax(-1, keepdim=True)  # so that exp cannot overflow
    unscaled = z.sub_(peak).exp_()
    total = unscaled.sum(-1, keepdim=True)
    return _Exponentials(unscaled, total, total.log() + peak, logit_y)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add `a` (V, N) times `b` (N, D) to `total` (V, D), which stays in fp32."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
