"""The loss of a batch: which tokens count, against PyTorch's cross-entropy of the model's own
logits.
"""

import pytest
import torch
from tiny import BACKENDS, randomised, split_of, tiny_model
from torch import Tensor
from torch.nn import functional as F

from mt_cli.data.batching import BatchShape, collate
from mt_cli.training.loss import batch_loss


def gradients(loss: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, tensors)


def assert_close(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("output_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
def test_batch_loss_counts_real_tokens_only(tie: str, output_bias: bool) -> None:
    model = randomised(tiny_model(tie=tie, output_bias=output_bias))
    batch = collate(split_of([([5, 6, 7], [4]), ([8], [9, 10, 4, 5])]), [0, 1])
    loss = batch_loss(model, batch, label_smoothing=0.1).minimised
    logits = model(batch.src_ids, batch.tgt_in)
    expected = F.cross_entropy(
        logits.transpose(1, 2), batch.tgt_out, ignore_index=0, label_smoothing=0.1, reduction="sum"
    )
    assert_close(loss, expected)
    assert_close(gradients(loss, *model.parameters()), gradients(expected, *model.parameters()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [0.0, 2.0], ids=["plain", "R-Drop"])
def test_empty_rows_and_wider_padding_change_nothing(backend: str, alpha: float) -> None:
    model = randomised(tiny_model(backend, decoder_layers=2))
    split = split_of([([5, 6, 7], [4]), ([8], [9, 10, 4, 5])])
    exact, padded = (
        collate(split, [0, 1], shape)
        for shape in (None, BatchShape(rows=5, src_width=6, tgt_width=7))
    )
    losses = [
        batch_loss(model, each, label_smoothing=0.1, r_drop=alpha) for each in (exact, padded)
    ]
    assert_close(losses[1].minimised, losses[0].minimised)
    assert_close(losses[1].nll, losses[0].nll)
    wanted = list(model.parameters())
    assert_close(gradients(losses[1].minimised, *wanted), gradients(losses[0].minimised, *wanted))
