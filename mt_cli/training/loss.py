"""Label-smoothed cross-entropy over the target tokens, R-Drop, and teachers.

The tokens of a batch are processed in pieces. To add a term of the model's output, extend
`batch_loss`; to add a term of the logits, extend `LogitsLoss`, with its gradient. Letters: B rows
of a batch, T target positions, D d_model, V target vocabulary, M real target tokens, n tokens in a
piece.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mt_cli.data.batching import Batch
from mt_cli.machine.device import Runtime
from mt_cli.model.model import TranslationModel

PIECE_LOGITS = {"cpu": 1 << 23, "cuda": 1 << 28, "mps": 1 << 28}
"""Logits per matrix product: enough to keep the device busy."""
BLOCK_LOGITS = {"cpu": 1 << 19, "cuda": 1 << 26, "mps": 1 << 26}
"""Logits turned into gradients at a time, in fp32: on a CPU, few enough for its caches."""
PIECE_STEP = 32
"""Row counts are multiples of this, because a CPU's bf16 kernels are generated per row count."""


@dataclass(frozen=True)
class Loss:
    """Sums over the tokens of a batch, kept as tensors so that nothing waits for the device."""

    minimized: Tensor
    """Scalar: cross-entropy with smoothed labels, which may include teachers' predictions, plus
    R-Drop's penalty if it is on.
    """
    nll: Tensor
    """Scalar: negative log-likelihood of the tokens, in nats, without a gradient."""


class Teachers:
    """Trained models for knowledge distillation (Hinton et al. 2015), without dropout."""

    def __init__(
        self, models: Sequence[TranslationModel], *, share: float, runtime: Runtime
    ) -> None:
        """The mean prediction of the `models` gets a weight of `share` in each label."""
        self.share = share
        self._models = models
        for model in models:
            model.to(runtime.device).compute_in(runtime.dtype).requires_grad_(False).eval()

    @torch.no_grad()
    def hidden(self, batch: Batch) -> list[Tensor]:
        """The decoder output (M, D) of each teacher, teacher-forced; the input of `predict`."""
        found = []
        for model in self._models:
            hidden = model.hidden(batch.src_ids, batch.tgt_in)  # (B, T, D)
            found.append(batch.select_targets(hidden.flatten(0, 1)))
        return found

    @torch.no_grad()
    def predict(self, hidden: Sequence[Tensor]) -> Tensor:
        """The mean of the teachers' probabilities (n, V); `hidden` has a piece (n, D) for each."""
        predicted = []
        for model, piece in zip(self._models, hidden, strict=True):
            predicted.append(logits_of(model, piece).float().softmax(-1))
        return torch.stack(predicted).mean(0)


def batch_loss(
    model: TranslationModel,
    batch: Batch,
    *,
    label_smoothing: float,
    r_drop: float = 0.0,
    teachers: Teachers | None = None,
) -> Loss:
    """Loss of `model` on `batch`, teacher-forced, over real tokens only.

    `r_drop` is R-Drop's alpha. With it, both passes run as one batch of twice the rows. If the
    targets are padded, the loss of the padding is subtracted; its value is known only if the output
    layer has no bias.
    """
    passes = 2 if r_drop else 1
    hidden = model.hidden(batch.src_ids.repeat(passes, 1), batch.tgt_in.repeat(passes, 1))
    hidden = batch.select_targets(hidden.view(passes, -1, hidden.shape[-1]))  # (passes, M, D)
    of_teachers = teachers.hidden(batch) if teachers else []
    V = len(model.output.weight)
    most = PIECE_LOGITS[hidden.device.type] // (passes * V)
    size = max(1, most // PIECE_STEP) * PIECE_STEP
    minimized, nll = hidden.new_zeros(2, dtype=torch.float32)
    for begin in range(0, max(1, hidden.shape[1]), size):  # at least once, to get gradients
        piece = slice(begin, begin + size)
        targets = batch.targets[piece]
        predicted = None
        if teachers:
            predicted = teachers.predict([each[piece] for each in of_teachers])
        filled = F.pad(hidden[:, piece], (0, 0, 0, -len(targets) % PIECE_STEP))
        loss, of_nll = LogitsLoss.apply(  # type: ignore[no-untyped-call]
            logits_of(model, filled),
            targets,
            label_smoothing,
            r_drop,
            predicted,
            teachers.share if teachers else 0.0,
        )
        minimized = minimized + loss / passes
        nll = nll + of_nll / passes
    if batch.has_spare_targets:
        # A hidden vector of zeros has logits of zero: its loss is log V, without any gradient.
        spare = (batch.tgt_places == batch.tgt_out.numel()).sum() * math.log(V)
        return Loss(minimized - spare, nll - spare)
    return Loss(minimized, nll)


def logits_of(model: TranslationModel, hidden: Tensor) -> Tensor:
    """Logits (…, V) of `hidden` (…, D), in the same dtype."""
    output = model.output
    bias = None if output.bias is None else output.bias.to(hidden.dtype)
    return F.linear(hidden, output.weight.to(hidden.dtype), bias)


class LogitsLoss(torch.autograd.Function):
    """The loss of n tokens with `logits` (passes, ≥ n, V) and `targets` (n,), summed over passes.

    With p = softmax(z) and the label q, cross-entropy is -Σ q log p, and its gradient with respect
    to the logits z is p - q. q is 1 - `label_smoothing` on the token plus `label_smoothing` spread
    evenly over all V (Szegedy et al. 2016, section 7). With teachers, `predicted_share` of q comes
    from their predictions, `predicted` (n, V).

    Autograd would write all logits to memory five times; with R-Drop in 16 bits, that took a
    seventh of an update. Here the gradient is computed together with the loss, block by block.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        logits: Tensor,
        targets: Tensor,
        label_smoothing: float,
        r_drop: float,
        predicted: Tensor | None,
        predicted_share: float,
    ) -> tuple[Tensor, Tensor]:
        """Loss and nll; only the loss has a gradient."""
        passes, _, V = logits.shape
        n = len(targets)
        own_share = (1 - predicted_share) * (1 - label_smoothing)
        uniform = (1 - predicted_share) * label_smoothing / V
        loss, nll = logits.new_zeros(2, dtype=torch.float32)
        gradients = torch.empty_like(logits)
        gradients[:, n:] = 0.0  # the padding of the piece has no loss
        size = max(1, BLOCK_LOGITS[logits.device.type] // (passes * V))
        for begin in range(0, n, size):
            rows = slice(begin, min(begin + size, n))
            z = logits[:, rows].float()
            p = z.softmax(-1)
            # Faster than z.logsumexp(-1): the likeliest token's log-probability is its logit minus
            # this.
            logsumexp = z.amax(-1, keepdim=True) - p.amax(-1, keepdim=True).log()
            y = targets[rows, None].expand(passes, -1, -1)  # (passes, rows, 1)
            logit_y = z.gather(-1, y)
            wanted = own_share * logit_y + uniform * z.sum(-1, keepdim=True)
            if predicted is not None:
                wanted += predicted_share * (predicted[rows] * z).sum(-1, keepdim=True)
            loss += (logsumexp - wanted).sum()
            nll += (logsumexp - logit_y).sum()
            gradient = p
            if r_drop:
                penalty, gradient = r_drop_penalty_and_gradient(z, p, alpha=r_drop)
                loss += penalty
            gradient.scatter_add_(-1, y, torch.full_like(logit_y, -own_share))
            if predicted is not None:
                gradient.sub_(predicted[rows], alpha=predicted_share)
            torch.sub(gradient, uniform, out=gradients[:, rows])
        ctx.save_for_backward(gradients)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Gradient of the logits; None for the other inputs."""
        (gradients,) = ctx.saved_tensors
        return gradients.mul_(grad), None, None, None, None, None  # in place: not needed again


def r_drop_penalty_and_gradient(z: Tensor, p: Tensor, *, alpha: float) -> tuple[Tensor, Tensor]:
    """R-Drop's penalty, and the gradient of cross-entropy plus penalty by the logits.

    Let z and z' be the logits of the passes and p and p' their softmax. Equation 3 of Liang et al.
    (2021) is the sum of both cross-entropies and a penalty of alpha/2 (KL(p|p') + KL(p'|p)). Both
    divergences together are Σ (p - p') (z - z'). The gradient with respect to z is p - q + alpha/2
    (p (z - z' - m) + p - p'), where q is the label and m the mean of z - z' under p. For z',
    swap both passes.

    Takes `z` and `p` (2, R, V). Returns the penalty, summed over the tokens, and the gradient
    without q (2, R, V).
    """
    half = alpha / 2
    gradient = p * (z[0] - z[1])
    mean = gradient.sum(-1, keepdim=True)  # (2, R, 1): of z - z', under p and under p'
    for own, other, sign in ((0, 1, half), (1, 0, -half)):
        gradient[own].mul_(sign).addcmul_(p[own], 1 + half - sign * mean[own])
        gradient[own].sub_(p[other], alpha=half)
    return half * (mean[0] - mean[1]).sum(), gradient
