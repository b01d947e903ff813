"""The training objective: label-smoothed cross-entropy over real target tokens.

Joins the output layer and the loss, so that the logits of a whole batch never exist at once.
Letters: N tokens, D d_model, V target vocabulary, P tokens of a piece, n of them real.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mt_cli.data.batching import Batch
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.early_gradients import CHUNK_LOGITS, EarlyGradients, add_product, fill_up, piece_size
from mt_cli.training.r_drop import RDropCrossEntropy


@dataclass(frozen=True)
class Loss:
    """Sums over the tokens of a batch, kept as tensors so that nothing waits for the device."""

    smoothed: Tensor
    """Scalar: the minimised loss."""
    nll: Tensor
    """Scalar: minus the log-probability of the tokens, in nats, without a gradient."""


def batch_loss(model: TranslationModel, batch: Batch, *, label_smoothing: float, r_drop: float = 0.0) -> Loss:
    """Loss of `model` on `batch`, teacher-forced, over real tokens only.

    `r_drop` is R-Drop's alpha; 0 turns R-Drop off and makes one pass.
    """
    targets = batch.tgt_out.flatten()[batch.real]  # (N,)
    if r_drop:
        passes = model.hidden(batch.src_ids.repeat(2, 1), batch.tgt_in.repeat(2, 1)).chunk(2)
        hidden = torch.stack([_at(batch.real, each) for each in passes])  # (2, N, D)
    else:
        hidden = _at(batch.real, model.hidden(batch.src_ids, batch.tgt_in))  # (N, D)
    return smoothed_cross_entropy(
        hidden,
        model.output.weight,
        model.output.bias,
        targets,
        label_smoothing=label_smoothing,
        r_drop=r_drop,
    )


def _at(places: Tensor, hidden: Tensor) -> Tensor:
    """`hidden` (B, T, D), flattened, at `places` (N,): (N, D)."""
    return hidden.flatten(0, 1).index_select(0, places)


def smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    label_smoothing: float,
    r_drop: float = 0.0,
) -> Loss:
    """Sum over `targets` (N,) of cross-entropy with smoothed labels (Szegedy et al. 2016, 7).

    Logits are `hidden` (N, D) times `weight` (V, D) transposed, plus `bias` (V,). Each label is
    1 - `label_smoothing` on its token plus `label_smoothing` spread evenly over all V. With `r_drop`,
    `hidden` (2, N, D) comes from two passes, and their divergence counts too; see `RDropCrossEntropy`.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        hidden = hidden.to(torch.get_autocast_dtype(device))
    operands = (hidden, weight.to(hidden.dtype), bias, targets, label_smoothing)
    with torch.autocast(device, enabled=False):
        if r_drop:
            smoothed, nll = RDropCrossEntropy.apply(*operands, r_drop)  # type: ignore[no-untyped-call]
        else:
            smoothed, nll = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
                *operands, torch.is_grad_enabled()
            )
    return Loss(smoothed, nll)


class _LinearCrossEntropy(EarlyGradients):
    """Computes its gradients in the forward pass, piece by piece, while the logits are in memory.

    With p = softmax(z) and smoothed label q, the loss is -Σ q log p and its gradient in z is p - q. Every
    pass over all logits is slow, so p is never divided by its sum. The even part of q, ε/V on every token,
    takes D numbers per token, not V: the mean of z over V is h times the mean of the weight's rows.
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
        N, size = len(targets), piece_size(len(targets), most=CHUNK_LOGITS[hidden.device.type] // len(weight))
        grad_hidden = torch.empty_like(hidden) if needs_grad else hidden
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_grad else weight
        grad_bias = torch.zeros_like(weight[:, 0], dtype=torch.float32)
        smoothed, nll = hidden.new_zeros(2, dtype=torch.float32)
        mean_row = weight.mean(0)  # (D,)
        mean_bias = 0.0 if bias is None else bias.mean()
        for begin in range(0, N, size):
            piece = slice(begin, min(begin + size, N))
            n = piece.stop - begin
            h = fill_up(hidden[piece], size)  # (P, D)
            logits = (h @ weight.mT)[:n].float()  # (n, V)
            if bias is not None:
                logits += bias
            y = targets[piece].unsqueeze(1)  # (n, 1)
            logit_y = logits.gather(1, y)
            peak = logits.amax(-1, keepdim=True)  # so that exp cannot overflow
            unscaled = logits.sub_(peak).exp_()  # the probabilities, times `total`
            total = unscaled.sum(-1, keepdim=True)
            log_total = total.log() + peak
            mean_logit = (h @ mean_row)[:n].float() + mean_bias
            nll += (log_total - logit_y).sum()
            smoothed += (
                log_total - (1 - label_smoothing) * logit_y
            ).sum() - label_smoothing * mean_logit.sum()
            if needs_grad:
                unscaled.scatter_add_(1, y, total * (label_smoothing - 1))
                share = 1 / total  # (n, 1)
                if bias is not None:
                    grad_bias += (unscaled.mT @ share).squeeze(1)
                unscaled = fill_up(unscaled.to(h.dtype), size)  # (P, V)
                grad_hidden[piece] = ((unscaled @ weight)[:n] * share).sub_(mean_row, alpha=label_smoothing)
                add_product(grad_weight, unscaled.mT, (h * fill_up(share, size)).to(h.dtype))
        if needs_grad:
            even = label_smoothing / len(weight)
            grad_weight.sub_(hidden.float().sum(0), alpha=even)
            grad_bias.sub_(even * N)
        EarlyGradients.keep(ctx, nll, grad_hidden, grad_weight, grad_bias, bias=bias, weight=weight)
        return smoothed, nll
