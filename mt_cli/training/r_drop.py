"""R-Drop (Liang et al. 2021): two passes with different dropout, trained to predict the same.

Letters: R tokens, V target vocabulary.
"""

from torch import Tensor


def divergence(unscaled: Tensor, total: Tensor, difference: Tensor, *, alpha: float) -> tuple[Tensor, Tensor]:
    """Alpha/2 times the divergences of both passes from each other, and the gradient of the whole loss.

    Let z and z' be the logits of the passes and p and p' their softmax. The two divergences, KL(p|p') and
    KL(p'|p), together are Σ (p - p') (z - z'). The sum of both passes' cross-entropy and alpha/2 times that
    are equation 3 of the paper. The gradient in z is p + alpha/2 (p (z - z' - m) + p - p'), without the
    label's part, where m is the mean of z - z' under p; for z', both passes are exchanged.

    `difference` (R, V) is z - z', and `unscaled` (2, R, V) is p times `total` (2, R, 1), the gradient too.
    """
    gradient = unscaled * difference
    mean = gradient.sum(-1, keepdim=True) / total  # of z - z', under p and under p'
    half, ratio = alpha / 2, total / total.flip(0)
    for own, other, pull in ((0, 1, half), (1, 0, -half)):
        gradient[own].mul_(pull).addcmul_(unscaled[own], 1 + half - pull * mean[own])
        gradient[own].addcmul_(unscaled[other], ratio[own], value=-half)
    return half * (mean[0] - mean[1]).sum(), gradient
