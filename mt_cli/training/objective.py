"""The training objective: label-smoothed cross-entropy over real target tokens.

Letters: N tokens, D d_model, V target vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.data.batching import Batch
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.linear_cross_entropy import LinearCrossEntropy


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
    `hidden` (2, N, D) comes from two passes. The loss is then half of that of R-Drop's paper (Liang et al.
    2021, equation 3), so it is as large as the loss of one pass.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        hidden = hidden.to(torch.get_autocast_dtype(device))
    passes = hidden if r_drop else hidden.unsqueeze(0)  # (K, N, D)
    with torch.autocast(device, enabled=False):
        loss, nll = LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
            passes, weight, bias, targets, label_smoothing, r_drop, torch.is_grad_enabled()
        )
    return Loss(loss, nll)
