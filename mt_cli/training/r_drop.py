"""R-Drop (Liang et al. 2021): two passes with different dropout, trained to predict the same.

Joins the output layer and the loss, as `objective` does for one pass, and for the same reason.
Letters: N tokens, D d_model, V target vocabulary, P tokens of a piece, n of them real.
"""

from typing import Any

import torch
from torch import Tensor

from mt_cli.training.early_gradients import CHUNK_LOGITS, EarlyGradients, add_product, fill_up, piece_size


class RDropCrossEntropy(EarlyGradients):
    """Mean cross-entropy of two passes, plus alpha/4 times the sum of both divergences.

    This is half of the paper's loss (equation 3), so it is as large as the loss of one pass. Let p and p' be
    the predictions, d = log p - log p' and q the label. The gradient in the first pass's logits is
    (p - q) / 2 + alpha/4 (p (d - KL(p|p')) + p - p'); for the second pass, p and p' are exchanged.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        alpha: float,
    ) -> tuple[Tensor, Tensor]:
        """Loss and nll of `hidden` (2, N, D), `weight` (V, D), `bias` (V,) and `targets` (N,)."""
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        grad_bias = torch.zeros_like(weight[:, 0], dtype=torch.float32)
        loss, nll = hidden.new_zeros(2, dtype=torch.float32)
        even = label_smoothing / len(weight)
        low_weight = weight.to(hidden.dtype)
        most = CHUNK_LOGITS[hidden.device.type] // (2 * len(weight))
        N, size = len(targets), piece_size(len(targets), most=most)
        for begin in range(0, N, size):
            piece = slice(begin, min(begin + size, N))
            n = piece.stop - begin
            h = fill_up(hidden[:, piece], size)  # (2, P, D)
            y = targets[piece, None].expand(2, -1, -1)  # (2, n, 1)
            logits = (h @ low_weight.mT)[:, :n].float()  # (2, n, V)
            if bias is not None:
                logits += bias
            log_p = torch.log_softmax(logits, -1)
            del logits
            p = log_p.exp()
            log_of_label = log_p.gather(-1, y)  # (2, n, 1)
            nll -= log_of_label.sum() / 2
            loss -= (1 - label_smoothing) / 2 * log_of_label.sum() + even / 2 * log_p.sum()
            d = log_p[0] - log_p[1]  # (n, V)
            del log_p
            kl = torch.stack([(p[0] * d).sum(-1, keepdim=True), -(p[1] * d).sum(-1, keepdim=True)])
            loss += alpha / 4 * kl.sum()
            grad = _gradient(p, d, kl, alpha=alpha).sub_(even / 2)
            grad.scatter_add_(-1, y, torch.full_like(log_of_label, (label_smoothing - 1) / 2))
            grad_bias += grad.sum((0, 1))
            grad = fill_up(grad.to(h.dtype), size)  # (2, P, V)
            grad_hidden[:, piece] = (grad @ low_weight)[:, :n]
            add_product(grad_weight, grad.flatten(0, 1).mT, h.flatten(0, 1))
        EarlyGradients.keep(ctx, nll, grad_hidden, grad_weight, grad_bias, bias=bias, weight=weight)
        return loss, nll


def _gradient(p: Tensor, d: Tensor, kl: Tensor, *, alpha: float) -> Tensor:
    """Gradient of the loss in the logits, without the labels' part.

    `p` (2, n, V), `d` (n, V), `kl` (2, n, 1): (2, n, V).
    """
    beta = alpha / 4
    grad = torch.stack([d, d.neg()]).sub_(kl).mul_(beta).add_(0.5 + beta).mul_(p)
    return grad.sub_(p.flip(0), alpha=beta)
