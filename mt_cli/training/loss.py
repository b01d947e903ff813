"""The training objective: label-smoothed cross-entropy over real target tokens, and R-Drop.

Output layer and cross-entropy are one function that works piece by piece, so that logits take
bounded memory. Its gradients are computed in the forward pass, while the logits of a piece are
there. Letters: B rows of a batch, T target positions, D d_model, V target vocabulary, P tokens of a
piece, n of them real, R tokens of a block.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mt_cli.data.batching import Batch
from mt_cli.machine.device import Runtime
from mt_cli.model.model import TranslationModel


def batch_loss(
    model: TranslationModel,
    batch: Batch,
    *,
    label_smoothing: float,
    r_drop: float = 0.0,
    teacher_labels: "TeacherLabels | None" = None,
) -> "Loss":
    """Loss of `model` on `batch`, teacher-forced, over real tokens only.

    `r_drop` is R-Drop's alpha. With it, both passes are one batch of twice the rows; 0 makes one
    pass. If the batch is padded, the loss of the padding is subtracted; its value is known only if
    the output layer has no bias.
    """
    num_passes = 2 if r_drop else 1
    src_ids = batch.src_ids.repeat(num_passes, 1)
    tgt_in = batch.tgt_in.repeat(num_passes, 1)
    hidden = model.hidden(src_ids, tgt_in)  # (passes·B, T, D)
    hidden = hidden.view(num_passes, -1, hidden.shape[-1])  # (passes, B·T, D)
    loss = linear_cross_entropy(
        batch.select_targets(hidden),
        model.output.weight,
        model.output.bias,
        batch.targets,
        label_smoothing=label_smoothing,
        r_drop=r_drop,
        teacher_labels=teacher_labels,
    )
    if batch.has_spare_targets:
        # Where the hidden vector is zero, all logits are: the loss is log V, and no weight has a
        # gradient.
        spare = (batch.tgt_places == batch.tgt_out.numel()).sum() * math.log(
            len(model.output.weight)
        )
        loss = Loss(loss.minimized - spare, loss.nll - spare)
    return loss


PIECE_LOGITS = {"cpu": 1 << 23, "cuda": 1 << 28, "mps": 1 << 28}
"""Logits of one matrix product: they bound memory, and are enough to keep the device busy."""
BLOCK_LOGITS = {"cpu": 1 << 19, "cuda": 1 << 26, "mps": 1 << 26}
"""Logits that are turned into gradients at a time, in fp32: on a CPU, few enough for its caches."""
PIECE_STEP = 32
"""Piece sizes are multiples of this many tokens, so that there are few sizes."""


@dataclass(frozen=True)
class Loss:
    """Sums over the tokens of a batch, kept as tensors so that nothing waits for the device."""

    minimized: Tensor
    """Scalar: cross-entropy with smoothed labels, of which teachers' predictions may be a part, and
    R-Drop's penalty where that is on.
    """
    nll: Tensor
    """Scalar: minus the log-probability of the tokens, in nats, without a gradient."""


@dataclass(frozen=True)
class TeacherOutput:
    """What a teacher has computed for the M real tokens of a batch, up to its logits.

    They are computed where they are needed: all of them would take much memory.
    """

    hidden: Tensor
    """(M, D): decoder output."""
    weight: Tensor
    """(V, D): of the output layer, in the type of `hidden`."""
    bias: Tensor | None
    """(V,)"""

    def logits(self, piece: slice, size: int) -> Tensor:
        """Logits (n, V) of the n tokens of a `piece`, multiplied as `size` tokens."""
        logits = pad_rows(self.hidden[piece], size) @ self.weight.mT
        if self.bias is not None:
            logits += self.bias
        return logits[: piece.stop - piece.start]


@dataclass(frozen=True)
class TeacherLabels:
    """The part of the labels that teachers predict."""

    share: float
    """Their weight in each label."""
    outputs: Sequence[TeacherOutput]
    """One or more; what they predict is the mean of their probabilities."""


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    label_smoothing: float,
    r_drop: float = 0.0,
    teacher_labels: TeacherLabels | None = None,
) -> Loss:
    """Cross-entropy with smoothed labels (Szegedy et al. 2016, section 7).

    It is summed over tokens and averaged over passes. Logits are `hidden` (passes, tokens, D) times
    `weight` (V, D) transposed, multiplied in the type of `hidden`, plus `bias` (V,); `targets` are
    (tokens,). Each label is 1 - `label_smoothing` on its token plus `label_smoothing` spread evenly
    over all V. With `r_drop`, R-Drop's alpha, there are two passes, and the loss is half of the
    paper's (Liang et al. 2021, equation 3), so it is as large as that of one pass. With
    `teacher_labels`, their share of each label is what the teachers predict.
    """
    needs_grad = torch.is_grad_enabled()
    loss, nll = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, targets, label_smoothing, r_drop, teacher_labels, needs_grad
    )
    return Loss(loss, nll)


class _LinearCrossEntropy(torch.autograd.Function):
    """What is known as fused linear cross-entropy.

    With p = softmax(z) and smoothed label q, the loss is -Σ q log p, and its gradient with respect
    to z is p - q. The uniform part of q, ε/V on every token, needs no logits: the mean of z over V
    is h times the mean row of the weight, plus the mean bias.
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
        teacher_labels: TeacherLabels | None,
        needs_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        """Loss and nll; only the loss has a gradient."""
        share = 0.0 if teacher_labels is None else teacher_labels.share
        label_smoothing *= 1 - share
        num_passes, num_tokens, D = hidden.shape
        V = len(weight)
        size = piece_size(num_tokens, most=PIECE_LOGITS[hidden.device.type] // (num_passes * V))
        grad_hidden = torch.empty_like(hidden) if needs_grad else hidden
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_grad else weight
        grad_bias = torch.empty(0) if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        loss, nll = hidden.new_zeros(2, dtype=torch.float32)
        low_weight = weight.to(hidden.dtype)  # (V, D)
        mean_row = weight.mean(0).to(hidden.dtype)  # (D,)
        for begin in range(0, num_tokens, size):
            piece = slice(begin, min(begin + size, num_tokens))
            n = piece.stop - begin
            h = pad_rows(hidden[:, piece], size).flatten(0, 1)  # (passes·P, D)
            logits = (h @ low_weight.mT).view(num_passes, size, V)
            teacher_logits = []
            if teacher_labels is not None:
                teacher_logits = [each.logits(piece, size) for each in teacher_labels.outputs]
            for rows in _blocks(logits[:, :n]):
                of_block, gradient = _loss_and_gradient(
                    logits[:, rows],
                    bias,
                    targets[piece][rows],
                    own_share=1 - share - label_smoothing,
                    predicted=_mean_softmax([each[rows] for each in teacher_logits]),
                    predicted_share=share,
                    r_drop=r_drop,
                )
                loss += of_block.minimized
                nll += of_block.nll
                if needs_grad:
                    logits[:, rows] = gradient
                    if bias is not None:
                        grad_bias += gradient.sum((0, 1))
            means = (h @ mean_row).view(num_passes, size)[:, :n]  # of the logits, without the bias
            loss -= label_smoothing * means.sum(dtype=torch.float32)
            if needs_grad:
                logits[:, n:] = 0.0  # what fills the piece has no loss
                gradient = logits.flatten(0, 1)  # (passes·P, V)
                product = (gradient @ low_weight).view(num_passes, size, D)
                grad_hidden[:, piece] = product[:, :n] - label_smoothing * mean_row
                _add_product(grad_weight, gradient.mT, h)
        if bias is not None:
            loss.sub_(bias.mean(), alpha=label_smoothing * num_passes * num_tokens)
            grad_bias.sub_(label_smoothing / V * num_passes * num_tokens)
        if needs_grad:
            grad_weight.sub_(hidden.sum((0, 1), dtype=torch.float32), alpha=label_smoothing / V)
        loss = loss / num_passes
        nll = nll / num_passes
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        ctx.has_bias = bias is not None
        ctx.weight_dtype = weight.dtype
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Gradients of the loss, times `grad`; None for the other inputs.

        What was saved is the gradient of the passes' sum, and the loss is their mean.
        """
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        grad = grad / len(grad_hidden)
        # In fp32, because bf16 would round `grad` itself.
        grad_of_hidden = (grad_hidden.float() * grad).to(grad_hidden.dtype)
        return (
            grad_of_hidden,
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


def pad_rows(rows: Tensor, size: int) -> Tensor:
    """`rows` (..., n, D) with zeros after them, (..., `size`, D)."""
    missing = size - rows.shape[-2]
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def _blocks(logits: Tensor) -> Iterator[slice]:
    """Slices of the n tokens of `logits` (passes, n, V) that are worked on together."""
    num_passes, n, V = logits.shape
    size = max(1, BLOCK_LOGITS[logits.device.type] // (num_passes * V))
    return (slice(begin, min(begin + size, n)) for begin in range(0, n, size))


def _mean_softmax(logits: Sequence[Tensor]) -> Tensor | None:
    """The mean of the softmax of each of `logits` (R, V), in fp32; None where there are none."""
    if not logits:
        return None
    total = logits[0].float().softmax(-1)
    for each in logits[1:]:
        total += each.float().softmax(-1)
    return total / len(logits)


def _loss_and_gradient(
    logits: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    own_share: float,
    predicted: Tensor | None,
    predicted_share: float,
    r_drop: float,
) -> tuple[Loss, Tensor]:
    """The loss of R tokens without the uniform part of their labels, summed over tokens and passes.

    Logits are `logits` (passes, R, V) plus `bias` (V,). Each label is `own_share` on its token, of
    `targets` (R,), and `predicted_share` of `predicted` (R, V), what teachers predict. Returns also
    the gradient with respect to the logits, (passes, R, V) in fp32.
    """
    z = logits.float()
    if bias is not None:
        z = z + bias
    p = z.softmax(-1)
    # Faster than z.logsumexp(-1): the likeliest token's log-probability is its logit minus this.
    logsumexp = z.amax(-1, keepdim=True) - p.amax(-1, keepdim=True).log()  # (passes, R, 1)
    y = targets[:, None].expand(len(z), -1, -1)  # (passes, R, 1)
    logit_y = z.gather(-1, y)
    wanted = own_share * logit_y  # the label's mean of the logits
    if predicted is not None:
        wanted = wanted + predicted_share * (predicted * z).sum(-1, keepdim=True)
    loss = (logsumexp - wanted).sum()
    gradient = p
    if r_drop:
        penalty, gradient = r_drop_penalty_and_gradient(z, p, alpha=r_drop)
        loss += penalty
    gradient.scatter_add_(-1, y, torch.full_like(logit_y, -own_share))
    if predicted is not None:
        gradient.sub_(predicted, alpha=predicted_share)
    return Loss(loss, (logsumexp - logit_y).sum()), gradient


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add `a` (V, passes·P) times `b` (passes·P, D) to `total` (V, D), which stays in fp32."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def r_drop_penalty_and_gradient(z: Tensor, p: Tensor, *, alpha: float) -> tuple[Tensor, Tensor]:
    """R-Drop's penalty, and the gradient of cross-entropy and penalty, with respect to the logits.

    Let z and z' be the logits of the passes and p and p' their softmax. Equation 3 of the paper is
    the sum of both cross-entropies and a penalty of alpha/2 (KL(p|p') + KL(p'|p)). Both divergences
    together are Σ (p - p') (z - z'). The gradient with respect to z is p - q + alpha/2 (p (z - z' -
    m) + p - p'), where q is the label and m the mean of z - z' under p. For z', exchange both
    passes.

    Takes `z` and `p` (2, R, V). Returns a scalar, a sum over the tokens, and (2, R, V): the
    gradient, without q.
    """
    half = alpha / 2
    gradient = p * (z[0] - z[1])
    mean = gradient.sum(-1, keepdim=True)  # (2, R, 1): of z - z', under p and under p'
    for own, other, sign in ((0, 1, half), (1, 0, -half)):
        gradient[own].mul_(sign).addcmul_(p[own], 1 + half - sign * mean[own])
        gradient[own].sub_(p[other], alpha=half)
    return half * (mean[0] - mean[1]).sum(), gradient


class Teachers:
    """Trained models that read what the student reads, without dropout."""

    def __init__(
        self, models: Sequence[TranslationModel], *, share: float, runtime: Runtime
    ) -> None:
        """Let the mean of what the `models` predict have a weight of `share` in each label."""
        self._share = share
        self._models = models
        self._weights = []
        for model in models:
            model.to(runtime.device).compute_in(runtime.dtype).requires_grad_(False).eval()
            self._weights.append(model.output.weight.to(runtime.dtype))

    @torch.no_grad()
    def labels(self, batch: Batch) -> TeacherLabels:
        """What they predict for `batch`, teacher-forced."""
        outputs = []
        for model, weight in zip(self._models, self._weights, strict=True):
            hidden = model.hidden(batch.src_ids, batch.tgt_in)  # (B, T, D)
            hidden = batch.select_targets(hidden.flatten(0, 1))
            outputs.append(TeacherOutput(hidden, weight, model.output.bias))
        return TeacherLabels(self._share, outputs)
