"""The training objective: label-smoothed cross-entropy over real target tokens.

Joins the output layer and the loss, so that the logits of a whole batch never exist at once.
Letters: N tokens, D d_model, V target vocabulary, P tokens of a piece, n of them real, R of a block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mt_cli.data.batching import Batch
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.early_gradients import CHUNK_LOGITS, EarlyGradients, add_product, fill_up, piece_size
from mt_cli.training.r_drop import RDropCrossEntropy

BLOCK_LOGITS = 1 << 19
"""Logits that a CPU works on at a time between two products: few enough for the caches of its cores."""


@dataclass(frozen=True)
class Loss:
    """Sums over the tokens of a batch, kept as tensors so that nothing waits for the device."""

    minimised: Tensor
    """Scalar: cross-entropy with smoothed labels, and R-Drop's divergence where that is on."""
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
    operands = (hidden, weight, bias, targets, label_smoothing)
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
        N, V = len(targets), len(weight)
        size = piece_size(N, most=CHUNK_LOGITS[hidden.device.type] // V)
        grad_hidden = torch.empty_like(hidden) if needs_grad else hidden
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_grad else weight
        grad_bias = torch.zeros_like(weight[:, 0], dtype=torch.float32)
        smoothed, nll = hidden.new_zeros(2, dtype=torch.float32)
        low_weight, mean_row = weight.to(hidden.dtype), weight.mean(0).to(hidden.dtype)  # (V, D), (D,)
        mean_bias = 0.0 if bias is None else bias.mean()
        for begin in range(0, N, size):
            piece = slice(begin, min(begin + size, N))
            n = piece.stop - begin
            h = fill_up(hidden[piece], size)  # (P, D)
            logits = h @ low_weight.mT  # (P, V)
            share = h.new_zeros(size, 1, dtype=torch.float32)
            for rows in _blocks(logits[:n]):
                y = targets[piece][rows].unsqueeze(1)  # (R, 1)
                of = _exponentials(logits[rows], bias, y)
                nll += (of.log_total - of.logit_y).sum()
                smoothed += (of.log_total - (1 - label_smoothing) * of.logit_y).sum()
                if needs_grad:
                    of.unscaled.scatter_add_(1, y, of.total * (label_smoothing - 1))
                    share[rows] = 1 / of.total
                    if bias is not None:
                        grad_bias += (of.unscaled.mT @ share[rows]).squeeze(1)
                    logits[rows] = of.unscaled
            smoothed -= label_smoothing * ((h @ mean_row)[:n].float() + mean_bias).sum()
            if needs_grad:
                unscaled = logits
                unscaled[n:] = 0
                grad_hidden[piece] = ((unscaled @ low_weight)[:n] * share[:n]).sub_(
                    mean_row, alpha=label_smoothing
                )
                add_product(grad_weight, unscaled.mT, (h * share).to(h.dtype))
        if needs_grad:
            even = label_smoothing / V
            grad_weight.sub_(hidden.float().sum(0), alpha=even)
            grad_bias.sub_(even * N)
        EarlyGradients.keep(ctx, nll, grad_hidden, grad_weight, grad_bias, bias=bias, weight=weight)
        return smoothed, nll


def _blocks(logits: Tensor) -> Iterator[slice]:
    """Rows of `logits` (n, V) that go together through the passes over them."""
    size = max(1, BLOCK_LOGITS // logits.shape[1]) if logits.is_cpu else len(logits)
    return (slice(begin, min(begin + size, len(logits))) for begin in range(0, len(logits), size))


@dataclass(frozen=True)
class _Exponentials:
    """What is known of R tokens with V logits each."""

    unscaled: Tensor
    """(R, V), fp32: the probabilities, times `total`."""
    total: Tensor
    """(R, 1)."""
    log_total: Tensor
    """(R, 1): log of the sum of exp of the logits."""
    logit_y: Tensor
    """(R, 1): logits of the labels."""


def _exponentials(logits: Tensor, bias: Tensor | None, y: Tensor) -> _Exponentials:
    """Of `logits` (R, V) plus `bias` (V,), with labels `y` (R, 1); fp32 logits are overwritten."""
    logits = logits.float()
    if bias is not None:
        logits += bias
    logit_y = logits.gather(1, y)
    peak = logits.amax(-1, keepdim=True)  # so that exp cannot overflow
    unscaled = logits.sub_(peak).exp_()
    total = unscaled.sum(-1, keepdim=True)
    return _Exponentials(unscaled, total, total.log() + peak, logit_y)
