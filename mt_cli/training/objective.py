"""The training objective: label-smoothed cross-entropy over real target tokens.

Joins the output layer and the loss, so that the logits of a batch never exist all at once.
Letters: N tokens, D d_model, V target vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mt_cli.data.batching import Batch
from mt_cli.model.translation_model import TranslationModel

CHUNK_LOGITS = 1 << 22
"""Logits computed at a time on a CPU: few enough to stay in its cache."""


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
    smoothed, nll = _LinearCrossEntropy.apply(hidden, weight, bias, targets, label_smoothing)  # type: ignore[no-untyped-call]
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
    ) -> tuple[Tensor, Tensor]:
        weight = weight.to(hidden.dtype)
        V = weight.shape[0]
        needs_grad = any(ctx.needs_input_grad[:3])
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight)
        grad_bias = torch.zeros_like(weight[:, 0], dtype=torch.float32)
        smoothed, nll = hidden.new_zeros(2, dtype=torch.float32)
        rows = len(targets) if hidden.is_cuda else max(1, CHUNK_LOGITS // V)
        chunks = [torch.split(tensor, rows) for tensor in (hidden, targets, grad_hidden)]
        for h, y, grad_h in zip(*chunks, strict=True):
            logits = (h @ weight.mT).float()  # (rows, V)
            if bias is not None:
                logits += bias
            logits -= logits.amax(-1, keepdim=True)
            y = y.unsqueeze(1)  # noqa: PLW2901
            logit_y, mean_logit = logits.gather(1, y).squeeze(1), logits.mean(-1)
            p = logits.exp_()
            normaliser = p.sum(-1, keepdim=True)
            log_normaliser = normaliser.log().squeeze(1)
            nll += (log_normaliser - logit_y).sum()
            smoothed += (
                log_normaliser - (1 - label_smoothing) * logit_y - label_smoothing * mean_logit
            ).sum()
            if needs_grad:
                p.div_(normaliser).sub_(label_smoothing / V)
                p.scatter_add_(1, y, p.new_full((1, 1), label_smoothing - 1).expand_as(y))
                grad_bias += p.sum(0)
                p = p.to(hidden.dtype)
                torch.mm(p, weight, out=grad_h)
                grad_weight.addmm_(p.mT, h)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        ctx.has_bias = bias is not None
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        return (
            grad_hidden * grad.to(grad_hidden.dtype),
            grad_weight * grad,
            grad_bias * grad if ctx.has_bias else None,
            None,
            None,
        )
