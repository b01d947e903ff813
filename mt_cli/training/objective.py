"""The training objective: label-smoothed cross-entropy over real target tokens, with R-Drop if asked for.

Letters: B rows of a batch, T target positions, D d_model.
"""

import torch

from mt_cli.data.batching import Batch
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.linear_cross_entropy import Loss, linear_cross_entropy


def batch_loss(model: TranslationModel, batch: Batch, *, label_smoothing: float, r_drop: float = 0.0) -> Loss:
    """Loss of `model` on `batch`, teacher-forced, over real tokens only.

    `r_drop` is R-Drop's alpha. With it, both passes are one batch of twice the rows; 0 makes one pass.
    """
    num_passes = 2 if r_drop else 1
    src_ids, tgt_in = (ids.repeat(num_passes, 1) for ids in (batch.src_ids, batch.tgt_in))
    hidden = model.hidden(src_ids, tgt_in)  # (passes·B, T, D)
    begins = torch.arange(num_passes, device=batch.real.device)[:, None] * batch.tgt_out.numel()
    places = (begins + batch.real).flatten()  # of the real tokens of all passes
    return linear_cross_entropy(
        hidden.flatten(0, 1).index_select(0, places).view(num_passes, -1, hidden.shape[-1]),
        model.output.weight,
        model.output.bias,
        batch.tgt_out.flatten()[batch.real],
        label_smoothing=label_smoothing,
        r_drop=r_drop,
    )
