"""The optimiser and its learning rate: how each parameter is updated."""

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from mt_cli.config.schema import OptimizerKind

STATE_KEYS = ("step", "exp_avg", "exp_avg_sq")
"""Adam's state of a parameter: number of updates, running means of its gradient and of the square."""


class Optimiser:
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019), by PyTorch's fused kernels.

    Weight decay applies only to matrices that are not embeddings or positions. `torch.optim` is not used: it
    loads PyTorch's compiler, which takes more than a second at the start of every training.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: OptimizerKind,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        self._parameters = dict(model.named_parameters())
        self._states = {
            name: {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            for name, parameter in self._parameters.items()
        }
        self._kernel = torch._fused_adam_ if optimizer == "adam" else torch._fused_adamw_
        self._betas, self._eps, self._weight_decay = betas, eps, weight_decay

    @torch.no_grad()
    def update(self, rate: float | Tensor, *, skipped: Tensor) -> None:
        """Update the parameters from their gradients at learning rate `rate`, then drop the gradients.

        If `skipped`, a scalar on the parameters' device, is 1 and not 0, nothing changes: no weight, running
        mean or number of updates. The host does not wait for its value.
        """
        with_gradient = {name: p for name, p in self._parameters.items() if p.grad is not None}
        all_steps = [self._states[name]["step"] for name in with_gradient]
        torch._foreach_add_(all_steps, [1 - skipped] * len(all_steps))
        for decays, weight_decay in ((True, self._weight_decay), (False, 0.0)):
            names = [
                name
                for name, p in with_gradient.items()
                if (p.dim() > 1 and "embedding" not in name and "positions" not in name) == decays
            ]
            if not names:  # the kernels take no empty list
                continue
            parameters: list[Tensor] = [with_gradient[name] for name in names]
            steps, exp_avgs, exp_avg_sqs = ([self._states[name][key] for name in names] for key in STATE_KEYS)
            self._kernel(
                parameters,
                [p.grad for p in parameters if p.grad is not None],
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
        for parameter in with_gradient.values():
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """The state, keyed `<parameter name>:<state key>`."""
        return {
            f"{name}:{key}": tensor for name, state in self._states.items() for key, tensor in state.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors()` returned.

        Raises:
            KeyError: a tensor is missing.
        """
        for key, tensor in self.tensors().items():
            tensor.copy_(tensors[key])


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
    if schedule == "cosine":  # half a cosine, zero after the last update (Loshchilov and Hutter 2017)
        done = (step - warmup_steps) / max(1, total_steps + 1 - warmup_steps)
        return peak_lr * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return peak_lr
