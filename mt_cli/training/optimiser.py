"""The optimiser, and its state by parameter name.

Knows parameters, never what computes with them.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

STATE_KEYS = ("step", "exp_avg", "exp_avg_sq")


def build_optimiser(
    model: nn.Module,
    *,
    optimizer: Literal["adam", "adamw"],
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> torch.optim.Adam:
    """Adam (Kingma and Ba 2015) or AdamW over `model`; only matrices outside embeddings decay."""
    named = list(model.named_parameters())
    decaying = [p for name, p in named if p.dim() > 1 and not _is_embedding(name)]
    others = [p for name, p in named if p.dim() < 2 or _is_embedding(name)]
    groups = [
        {"params": decaying, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=0.0, betas=betas, eps=eps, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` from the next update on."""
    for group in optimiser.param_groups:
        group["lr"] = rate


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's running means and counts, keyed `<parameter name>:<what>`."""
    return {
        f"{name}:{key}": optimiser.state[parameter][key]
        for name, parameter in model.named_parameters()
        if parameter in optimiser.state
        for key in STATE_KEYS
    }


def restore_optimiser(
    model: nn.Module, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Put back what `optimiser_tensors` gave."""
    for name, parameter in model.named_parameters():
        if f"{name}:step" in tensors:
            state = {key: tensors[f"{name}:{key}"] for key in STATE_KEYS}
            on_device = {key: value.to(parameter.device) for key, value in state.items()}
            optimiser.state[parameter] = on_device


def _is_embedding(name: str) -> bool:
    return "embedding" in name or "positions" in name
