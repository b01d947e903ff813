"""The optimiser: which parameter is updated how, and its state by parameter name.

Knows parameters and their gradients, never what computes with them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mt_cli.config import OptimizerKind
from mt_cli.training.muon import Muon


class Optimiser:
    """Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019), or Muon (Jordan et al. 2024).

    Only matrices outside embeddings decay. Muon updates the matrices of layers, and AdamW all else.
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
        self._model = model
        muon: list[dict[str, Any]] = []
        decaying, others = [], []
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2 or _is_embedding(name):
                others.append(parameter)
            elif optimizer == "muon" and not name.startswith("output"):
                muon.append({"params": [parameter], "parts": 3 if name.endswith("in_proj_weight") else 1})
            else:
                decaying.append(parameter)
        groups = [
            {"params": decaying, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        kind = torch.optim.Adam if optimizer == "adam" else torch.optim.AdamW
        adam = kind(groups, lr=0.0, betas=betas, eps=eps, fused=True)
        self._optimisers = [adam, Muon(muon, weight_decay=weight_decay)] if muon else [adam]

    def update(self, rate: float) -> None:
        """Change the parameters by their gradients, at learning rate `rate`, and drop the gradients."""
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Running means and counts, keyed `<parameter name>:<what>`; none before the first update."""
        return {
            f"{name}:{key}": state[key] for name, _, state, keys in self._states() if state for key in keys
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors()` gave.

        Raises:
            KeyError: something is missing.
        """
        for name, parameter, state, keys in self._states():
            if tensors:
                state.update({key: tensors[f"{name}:{key}"].to(parameter.device) for key in keys})

    def _states(self) -> Iterator[tuple[str, nn.Parameter, dict[str, Tensor], tuple[str, ...]]]:
        """Of every parameter: its name, itself, its state, and what that consists of."""
        names = {parameter: name for name, parameter in self._model.named_parameters()}
        for optimiser in self._optimisers:
            keys = Muon.STATE_KEYS if isinstance(optimiser, Muon) else ("step", "exp_avg", "exp_avg_sq")
            for group in optimiser.param_groups:
                for parameter in group["params"]:
                    yield names[parameter], parameter, optimiser.state[parameter], keys


def _is_embedding(name: str) -> bool:
    return "embedding" in name or "positions" in name
