"""The optimiser and its learning rate: how each parameter is updated."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from mt_cli.config.schema import OptimizerKind
from mt_cli.training.precision import copy_into, gradients

STATE_KEYS = ("step", "exp_avg", "exp_avg_sq")
"""Adam's state of a parameter: number of updates, running means of its gradient and of the square."""
MOMENTUM = 0.95
"""Decay of Muon's running mean of a gradient."""
RMS = 0.2
"""Size of the numbers in Muon's update at learning rate 1: about that of Adam's (Liu et al. 2025,
2.2).
"""


class Optimiser:
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019), by PyTorch's fused kernels,
    or Muon.

    Muon (Jordan et al. 2024) is for the matrices of encoder and decoder; AdamW then updates all
    else. Weight decay applies only to matrices that are not embeddings or positions. `torch.optim`
    is not used: it loads PyTorch's compiler, which takes more than a second at the start of every
    training.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: OptimizerKind,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        products_in: torch.dtype = torch.float32,
    ) -> None:
        """Muon multiplies matrices in the type `products_in`."""
        self._parameters = dict(model.named_parameters())
        self._states = dict[str, dict[str, Tensor]]()
        self._by_adam = defaultdict[float, list[str]](list)  # by their weight decay
        # Matrices of one shape are updated together, packed projections apart from others of their
        # shape.
        self._by_muon = defaultdict[tuple[bool, torch.Size], list[str]](list)
        for name, parameter in self._parameters.items():
            self._states[name] = {"exp_avg": torch.zeros_like(parameter)}
            if optimizer == "muon" and parameter.dim() == 2 and name.startswith("backend."):
                self._by_muon[name.endswith("in_proj_weight"), parameter.shape].append(name)
            else:
                decays = parameter.dim() > 1 and "embedding" not in name and "positions" not in name
                self._by_adam[weight_decay if decays else 0.0].append(name)
                self._states[name]["step"] = torch.zeros((), device=parameter.device)
                self._states[name]["exp_avg_sq"] = torch.zeros_like(parameter)
        self._products_in = products_in
        self._kernel = torch._fused_adam_ if optimizer == "adam" else torch._fused_adamw_
        self._betas, self._eps, self._weight_decay = betas, eps, weight_decay

    @torch.no_grad()
    def update(self, rate: float | Tensor, *, skipped: Tensor) -> None:
        """Update the parameters from their gradients at learning rate `rate`, then drop the
        gradients.

        If `skipped`, a scalar on the parameters' device, is 1 and not 0, nothing changes: no
        weight, running mean or number of updates. The host does not wait for its value.
        """
        share = 1 - skipped
        self._update_by_muon(rate, share)
        for weight_decay, names in self._by_adam.items():
            parameters: list[Tensor] = [self._parameters[name] for name in names]
            steps, exp_avgs, exp_avg_sqs = (
                [self._states[name][key] for name in names] for key in STATE_KEYS
            )
            torch._foreach_add_(steps, [share] * len(steps))
            self._kernel(
                parameters,
                gradients(parameters),
                exp_avgs,
                exp_avg_sqs,
                [],
                steps,
                lr=rate,
                beta1=self._betas[0],
                beta2=self._betas[1],
                weight_decay=weight_decay,
                eps=self._eps,
                amsgrad=False,
                maximize=False,
                found_inf=skipped,
            )
        for parameter in self._parameters.values():
            parameter.grad = None

    def _update_by_muon(self, rate: float | Tensor, share: Tensor) -> None:
        """Take Muon's step for its matrices, times `share`: a scalar, 1, or 0 if nothing may
        change.
        """
        for (is_packed, shape), names in self._by_muon.items():
            weights: list[Tensor] = [self._parameters[name] for name in names]
            means = [self._states[name]["exp_avg"] for name in names]
            gradient = torch.stack(gradients(weights)).nan_to_num_(0.0, 0.0, 0.0)
            mean = torch.stack(means).lerp_(gradient, (1 - MOMENTUM) * share)
            torch._foreach_copy_(means, mean.unbind())
            direction = gradient.lerp(mean, MOMENTUM)  # Nesterov's; (N, rows, columns)
            if is_packed:  # the projections of queries, keys and values are three matrices
                direction = direction.view(-1, shape[0] // 3, shape[1])
            step = orthogonal(direction, products_in=self._products_in)
            step *= rate * share * (RMS * math.sqrt(max(direction.shape[1:])))
            torch._foreach_mul_(weights, 1 - rate * share * self._weight_decay)
            torch._foreach_sub_(weights, step.view_as(gradient).unbind())

    def tensors(self) -> dict[str, Tensor]:
        """The state, keyed `<parameter name>:<state key>`."""
        return {
            f"{name}:{key}": tensor
            for name, state in self._states.items()
            for key, tensor in state.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors()` returned.

        Raises:
            KeyError: a tensor is missing.
            ValueError: one has another shape.
        """
        copy_into(self.tensors(), tensors)


def orthogonal(matrices: Tensor, *, products_in: torch.dtype = torch.float32) -> Tensor:
    """About the nearest orthogonal matrix of each, (N, rows, columns).

    Singular values become 0.7 to 1.2; very small ones stay below. Five iterations of Newton and
    Schulz, with the coefficients of Jordan et al. (2024).
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    norms = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
    x = (x / (norms + 1e-7)).to(
        products_in
    )  # fp16 would lose a small gradient before it is divided
    for _ in range(5):
        square = x @ x.mT
        factor = torch.baddbmm(square, square, square, beta=-4.775, alpha=2.0315)
        x = torch.baddbmm(x, factor, x, beta=3.4445)
    return (x.mT if is_tall else x).to(matrices.dtype)


def learning_rate(
    step: int,
    *,
    schedule: Literal["inverse_sqrt", "cosine", "constant"],
    peak_lr: float,
    warmup_steps: int,
    total_steps: int,
) -> float:
    """Rate at update `step` of `total_steps`: a linear rise to `peak_lr`, then `schedule`."""
    if step <= warmup_steps:
        return peak_lr * step / warmup_steps
    if schedule == "inverse_sqrt":  # falls with 1/sqrt(step) ("Noam", Vaswani et al. 2017, 5.3)
        return peak_lr * math.sqrt(max(1, warmup_steps) / step)
    if (
        schedule == "cosine"
    ):  # half a cosine, zero after the last update (Loshchilov and Hutter 2017)
        done = (step - warmup_steps) / max(1, total_steps + 1 - warmup_steps)
        return peak_lr * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return peak_lr
