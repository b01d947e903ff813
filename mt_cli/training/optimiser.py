"""The optimiser: how each parameter is updated, and the optimiser's state by parameter name.

Knows parameters and their gradients, never what computes with them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mt_cli.config import OptimizerKind

STATE_KEYS = ("step", "exp_avg", "exp_avg_sq")
"""Adam's state of a parameter: number of updates, running means of its gradient and of the square."""


class Optimiser:
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019).

    Weight decay applies only to matrices that are not embeddings or positions.
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
        decaying = [p for name, p in self._parameters.items() if _decays(name, p)]
        others = [p for name, p in self._parameters.items() if not _decays(name, p)]
        groups = [
            {"params": decaying, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        kind = torch.optim.Adam if optimizer == "adam" else torch.optim.AdamW
        self._adam = kind(groups, lr=0.0, betas=betas, eps=eps, fused=True)

    def update(self, rate: float) -> None:
        """Update the parameters from their gradients at learning rate `rate`, then drop the gradients."""
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """The state after an update, keyed `<parameter name>:<state key>`."""
        states = {name: self._adam.state[parameter] for name, parameter in self._parameters.items()}
        return {f"{name}:{key}": state[key] for name, state in states.items() for key in STATE_KEYS}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors()` returned.

        Raises:
            KeyError: a tensor is missing.
        """
        for name, parameter in self._parameters.items():
            state = {key: tensors[f"{name}:{key}"].to(parameter.device) for key in STATE_KEYS}
            self._adam.state[parameter].update(state)


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.dim() > 1 and "embedding" not in name and "positions" not in name
