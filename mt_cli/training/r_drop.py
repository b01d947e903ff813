"""R-Drop (Liang et al. 2021): two passes with different dropout, trained to predict the same.

Letters: R tokens, V target vocabulary.
"""

from torch import Tensor


def penalty_and_gradient(
    exps: Tensor, total: Tensor, difference: Tensor, *, alpha: float
) -> tuple[Tensor, Tensor]:
    """R-Drop's penalty, and the gradient in the logits of cross-entropy and penalty.

    Let z and z' be the logits of the passes and p and p' their softmax. Equation 3 of the paper is the sum of
    both cross-entropies and a penalty of alpha/2 (KL(p|p') + KL(p'|p)). Both divergences together are
    Σ (p - p') (z - z'). The gradient in z is p - q + alpha/2 (p (z - z' - m) + p - p'), where q is the label
    and m the mean of z - z' under p. For z', both passes are exchanged.

    Takes `exps` (2, R, V), which is p times `total` (2, R, 1), and `difference` (R, V), which is z - z'.
    Returns a scalar, a sum over the tokens, and (2, R, V): the gradient, without q, also times `total`.
    """
    gradient = exps * difference
    mean = gradient.sum(-1, keepdim=True) / total  # of z - z', under p and under p'
    half, ratio = alpha / 2, total / total.flip(0)
    for own, other, sign in ((0, 1, 1), (1, 0, -1)):
        gradient[own].mul_(sign * half).addcmul_(exps[own], 1 + half - sign * half * mean[own])
        gradient[own].addcmul_(exps[other], ratio[own], value=-half)
    return half * (mean[0] - mean[1]).sum(), gradient
