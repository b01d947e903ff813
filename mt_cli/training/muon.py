"""Muon: momentum, made orthogonal before it is added to a matrix.

An update of Adam changes few directions much and most hardly at all; this one changes all by as much.
Letters: N matrices of R rows and C columns.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients that bring every singular value near 1 within few iterations (Jordan et al. 2024)."""
ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024), its updates as large as Adam's (Liu et al. 2025, 2.2).

    A parameter of a group with `parts` p is p matrices, one above the other: queries, keys and values, say.
    """

    STATE_KEYS = ("momentum",)

    def __init__(
        self, params: Iterable[dict[str, Any]], *, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay, "parts": 1})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; matrices of one shape are made orthogonal together."""
        by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor, dict[str, Any]]]] = defaultdict(list)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    for matrix, direction in self._directions(parameter, parameter.grad, group):
                        by_shape[tuple(matrix.shape)].append((matrix, direction, group))
        for shape, entries in by_shape.items():
            size = (
                0.2 * max(shape) ** 0.5
            )  # an orthogonal matrix of this shape, times that: 0.2 root mean square
            directions = orthogonal(torch.stack([direction for _, direction, _ in entries]))
            for (matrix, _, group), direction in zip(entries, directions, strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(direction, alpha=-group["lr"] * size)

    def _directions(
        self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]
    ) -> Iterable[tuple[Tensor, Tensor]]:
        """Each matrix in `parameter`, with its gradient as Nesterov's momentum looks ahead of it."""
        state, beta = self.state[parameter], group["momentum"]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(gradient, 1 - beta)
        ahead = gradient.lerp(state["momentum"], beta)
        return zip(parameter.chunk(group["parts"]), ahead.chunk(group["parts"]), strict=True)


def orthogonal(matrices: Tensor) -> Tensor:
    """About U V^T for each U S V^T of `matrices` (N, R, C), by Newton-Schulz iterations: (N, R, C)."""
    a, b, c = NEWTON_SCHULZ
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if is_tall else matrices).to(torch.bfloat16 if matrices.is_cuda else matrices.dtype)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if is_tall else x).to(matrices.dtype)
