"""The training objective: label-smoothed cross-entropy over real target tokens.

Joins the output layer and the loss, so that the logits of a batch never exist all at once.
Letters: N tokens, D d_model, V target vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mt_cli.data.batching import Batch
from mt_cli.model.translation_model import TranslationModel

CHUNK_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 28}
"""Logits computed at a time: on a CPU few enough to stay in its cache, on a GPU enough to keep it busy."""


@dataclass(frozen=True)
class Loss:
    """Sums over the tokens of a batch; tensors, so that nothing waits for the device."""

    smoothed: Tensor
    """Scalar, what is minimised."""
    nll: Tensor
    """Scalar, minus the log-probability of the tokens, in nats; carries no gradient."""


def batch_loss(model: TranslationModel, batch: Batch, *, label_smoothing: float) -> Loss:
    """Loss of `model` on `batch`, teacher-forced, over real tokens only."""
    is_real = batch.tgt_out != model.pad_id  # (B, T)
    hidden = model.hidden(batch.src_ids, batch.tgt_in)[is_real]  # (N, D)
    return smoothed_cross_entropy(
        hidden,
        model.output.weight,
        model.output.bias,
        batch.tgt_out[is_real],
        label_smoothing=label_smoothing,
    )


def smoothed_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *, label_smoothing: float
) -> Loss:
    """Sum over `targets` (N,) of cross-entropy with smoothed labels (Szegedy et al. 2016, 7).

    Logits are `hidden` (N, D) times `weight` (V, D) transposed, plus `bias` (V,). Each label is
    1 - `label_smoothing` on its token plus `label_smoothing` spread evenly over all V.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        hidden = hidden.to(torch.get_autocast_dtype(device))
    weight = weight.to(hidden.dtype)
    with torch.autocast(device, enabled=False):
        smoothed, nll = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, targets, label_smoothing, torch.is_grad_enabled()
        )
    return Loss(smoothed, nll)


class _LinearCrossEntropy(torch.autograd.Function):
    """Computes its gradients on the way forward, chunk by chunk, while the logits are at hand.

    With p = softmax(z) and smoothed label q, the loss is -Σ q log p and its gradient in z is p - q.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        needs_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        grad_hidden = torch.empty_like(hidden) if needs_grad else hidden
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_grad else weight
        grad_bias = torch.zeros_like(weight[:, 0], dtype=torch.float32)
        smoothed, nll = hidden.new_zeros(2, dtype=torch.float32)
        rows = max(1, CHUNK_LOGITS[hidden.device.type] // weight.shape[0])
        chunks = [torch.split(tensor, rows) for tensor in (hidden, targets, grad_hidden)]
        for h, y, grad_h in zip(*chunks, strict=True):
            logits = (h @ weight.mT).float()  # (rows, V)
            if bias is not None:
                logits += bias
            chunk = _cross_entropy(logits, y, label_smoothing)
            smoothed += chunk.smoothed
            nll += chunk.nll
            if needs_grad:
                grad_logits = _gradient(logits, y, label_smoothing)
                grad_bias += grad_logits.sum(0)
                grad_logits = grad_logits.to(h.dtype)
                torch.mm(grad_logits, weight, out=grad_h)
                _add_product(grad_weight, grad_logits.mT, h)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        ctx.has_bias = bias is not None
        ctx.weight_dtype = weight.dtype
        return smoothed, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        return (
            grad_hidden * grad.to(grad_hidden.dtype),
            (grad_weight * grad).to(ctx.weight_dtype),
            grad_bias * grad if ctx.has_bias else None,
            None,
            None,
            None,
        )


def _cross_entropy(logits: Tensor, y: Tensor, label_smoothing: float) -> Loss:
    """Sums over a chunk's targets `y` (N,). Turns `logits` (N, V) into probabilities on the way."""
    logits -= logits.amax(-1, keepdim=True)  # so that exp cannot overflow
    logit_y = logits.gather(1, y.unsqueeze(1)).squeeze(1)
    mean_logit = logits.mean(-1)
    normaliser = logits.exp_().sum(-1, keepdim=True)
    logits /= normaliser
    log_normaliser = normaliser.log().squeeze(1)
    smoothed = log_normaliser - (1 - label_smoothing) * logit_y - label_smoothing * mean_logit
    return Loss(smoothed.sum(), (log_normaliser - logit_y).sum())


def _gradient(probs: Tensor, y: Tensor, label_smoothing: float) -> Tensor:
    """Gradient in the logits: `probs` (N, V), in place, minus the smoothed labels of `y` (N,)."""
    probs -= label_smoothing / probs.shape[1]
    y = y.unsqueeze(1)
    return probs.scatter_add_(1, y, probs.new_full((1, 1), label_smoothing - 1).expand_as(y))


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add `a` (V, N) times `b` (N, D) to `total` (V, D), whose sum keeps fp32."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
