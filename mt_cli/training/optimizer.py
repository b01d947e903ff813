"""Adam, AdamW and Muon, learning-rate schedules, and training in 16 bits."""

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never, cast

import torch
from torch import Tensor, nn

from mt_cli.config.schema import Schedule, TrainingConfig
from mt_cli.model.model import TranslationModel

BETAS = (0.9, 0.98)
"""Decay of Adam's two running means (Vaswani et al. 2017, 5.3)."""
EPS = 1e-9
"""Added to Adam's denominator."""
MOMENTUM = 0.95
"""Decay of Muon's running mean of the gradient."""
RMS = 0.2
"""Root mean square of Muon's update at learning rate 1: about that of Adam (Liu et al. 2025, 2.2).
"""


class Optimizer:
    """Adam, AdamW or Muon, with PyTorch's fused kernels for Adam and AdamW.

    Adam is by Kingma and Ba (2015), AdamW by Loshchilov and Hutter (2019). Muon (Jordan et al.
    2024) updates the matrices of encoder and decoder, and AdamW everything else. Weight decay
    applies only to matrices that are not embeddings or positions. `torch.optim` is not used,
    because importing it loads PyTorch's compiler, which takes more than a second.
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        *,
        matmul_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Muon multiplies matrices in `matmul_dtype`."""
        self._config = config
        self._matmul_dtype = matmul_dtype
        self._kernel = torch._fused_adam_ if config.optimizer == "adam" else torch._fused_adamw_
        self._parameters = dict(model.named_parameters())
        self._states: dict[str, dict[str, Tensor]] = {}
        self._by_adam = defaultdict[float, list[str]](list)  # by their weight decay
        # Matrices of the same shape are updated together, packed projections separately.
        self._by_muon = defaultdict[tuple[bool, torch.Size], list[str]](list)
        for name, parameter in self._parameters.items():
            state = {"exp_avg": torch.zeros_like(parameter)}
            is_matrix = parameter.dim() > 1
            if config.optimizer == "muon" and is_matrix and name.startswith("backend."):
                is_packed = name.endswith("in_proj_weight")
                self._by_muon[is_packed, parameter.shape].append(name)
            else:
                decays = is_matrix and "embedding" not in name and "positions" not in name
                self._by_adam[config.weight_decay if decays else 0.0].append(name)
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            self._states[name] = state

    @torch.no_grad()
    def step(self, lr: float | Tensor, *, skipped: Tensor) -> None:
        """Update the parameters at learning rate `lr`, and drop their gradients.

        `skipped` is a scalar on the parameters' device, 0 or 1, and the host does not wait for it.
        If it is 1, no weight, running mean or step count changes.
        """
        for (is_packed, shape), names in self._by_muon.items():
            self._muon_step(names, shape, lr, is_packed=is_packed, skipped=skipped)
        for weight_decay, names in self._by_adam.items():
            self._adam_step(names, lr, weight_decay=weight_decay, skipped=skipped)
        for parameter in self._parameters.values():
            parameter.grad = None

    def _adam_step(
        self, names: Sequence[str], lr: float | Tensor, *, weight_decay: float, skipped: Tensor
    ) -> None:
        weights: list[Tensor] = [self._parameters[name] for name in names]
        steps = [self._states[name]["step"] for name in names]
        torch._foreach_add_(steps, [1 - skipped] * len(steps))
        self._kernel(
            weights,
            gradients(weights),
            [self._states[name]["exp_avg"] for name in names],
            [self._states[name]["exp_avg_sq"] for name in names],
            [],
            steps,
            lr=lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=weight_decay,
            eps=EPS,
            amsgrad=False,
            maximize=False,
            found_inf=skipped,
        )

    def _muon_step(
        self,
        names: Sequence[str],
        shape: torch.Size,
        lr: float | Tensor,
        *,
        is_packed: bool,
        skipped: Tensor,
    ) -> None:
        """Update the N matrices `names` of one `shape`."""
        applied = 1 - skipped  # a factor of everything that changes
        weights: list[Tensor] = [self._parameters[name] for name in names]
        momenta = [self._states[name]["exp_avg"] for name in names]
        gradient = torch.stack(gradients(weights)).nan_to_num_(0.0, 0.0, 0.0)
        momentum = torch.stack(momenta).lerp_(gradient, (1 - MOMENTUM) * applied)
        torch._foreach_copy_(momenta, momentum.unbind())
        direction = gradient.lerp(momentum, MOMENTUM)  # Nesterov's; (N, rows, columns)
        if is_packed:  # the projections of queries, keys and values are three matrices
            direction = direction.view(-1, shape[0] // 3, shape[1])
        update = orthogonal(direction, matmul_dtype=self._matmul_dtype)
        update *= lr * applied * (RMS * math.sqrt(max(direction.shape[1:])))
        torch._foreach_mul_(weights, 1 - lr * applied * self._config.weight_decay)
        torch._foreach_sub_(weights, update.view_as(gradient).unbind())

    def state_dict(self) -> dict[str, Tensor]:
        """The state, keyed `<parameter name>:<state key>`."""
        found = {}
        for name, state in self._states.items():
            for key, tensor in state.items():
                found[f"{name}:{key}"] = tensor
        return found

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_dict()` returned; raises as `copy_into` does."""
        copy_into(self.state_dict(), tensors)


def orthogonal(matrices: Tensor, *, matmul_dtype: torch.dtype = torch.float32) -> Tensor:
    """Approximately the nearest orthogonal matrix to each of `matrices` (N, rows, columns).

    Five Newton-Schulz iterations with the coefficients of Jordan et al. (2024). Singular values
    become 0.7 to 1.2; very small ones stay below.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    norms = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
    # Normalize before the cast: fp16 would lose a small gradient.
    x = (x / (norms + 1e-7)).to(matmul_dtype)
    for _ in range(5):
        square = x @ x.mT
        factor = torch.baddbmm(square, square, square, beta=-4.775, alpha=2.0315)
        x = torch.baddbmm(x, factor, x, beta=3.4445)
    return (x.mT if is_tall else x).to(matrices.dtype)


def learning_rate(
    step: int, *, schedule: Schedule, peak_lr: float, warmup_steps: int, total_steps: int
) -> float:
    """Learning rate at update `step`: linear warm-up to `peak_lr`, then `schedule`.

    `inverse_sqrt` falls with 1/sqrt(step) ("Noam", Vaswani et al. 2017, 5.3); `cosine` is half a
    cosine that reaches zero after the last update (Loshchilov and Hutter 2017).
    """
    if step <= warmup_steps:
        return peak_lr * step / warmup_steps
    match schedule:
        case "constant":
            return peak_lr
        case "inverse_sqrt":
            return peak_lr * math.sqrt(max(1, warmup_steps) / step)
        case "cosine":
            done = (step - warmup_steps) / max(1, total_steps + 1 - warmup_steps)
            return peak_lr * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    assert_never(schedule)


FIRST_SCALE_LOG2 = 16
"""Binary logarithm of the initial loss scale: how often it can be halved before it is 1."""
UPDATES_BEFORE_GROWTH = 2000


class WorkingCopy:
    """A copy of the model with layers in another precision; in fp32, the model itself.

    Encoder and decoder layers are copied. Embeddings and the output layer are shared and stay in
    fp32, because the gradient of a frequent word's embedding sums up very many terms.
    """

    def __init__(self, model: TranslationModel, dtype: torch.dtype) -> None:
        self.model = model
        self._masters: list[Tensor] = []
        self._copies: list[Tensor] = []
        if dtype == model.dtype:
            return
        masters = dict(model.named_parameters())
        shared = {id(p): p for name, p in masters.items() if not name.startswith("backend.")}
        self.model = copy.deepcopy(model, shared).compute_in(dtype)
        for name, parameter in self.model.named_parameters():
            if parameter is not masters[name]:
                self._masters.append(masters[name])
                self._copies.append(parameter)

    @torch.no_grad()
    def copy_weights_from_master(self) -> None:
        """Copy the model's weights into the working copy."""
        if self._copies:
            torch._foreach_copy_(self._copies, self._masters)

    @torch.no_grad()
    def add_gradients_to_master(self) -> None:
        """Add the copy's gradients to the model's, in fp32, and drop the copy's."""
        if not self._copies:
            return
        sums = [torch.empty_like(master) for master in self._masters]
        torch._foreach_copy_(sums, gradients(self._copies))
        if self._masters[0].grad is not None:
            torch._foreach_add_(sums, gradients(self._masters))
        for master, own, gradient in zip(self._masters, self._copies, sums, strict=True):
            master.grad = gradient
            own.grad = None


class LossScale:
    """A factor that keeps fp16's small gradients from becoming 0 (Micikevicius et al. 2018, 3.2).

    The factor is halved when a gradient overflows, and doubled after many updates without
    overflow. It stays on the device, so no update waits for it. In other precisions it is 1.
    """

    def __init__(self, dtype: torch.dtype, *, device: torch.device) -> None:
        self.is_used = dtype == torch.float16
        first = 2.0**FIRST_SCALE_LOG2 if self.is_used else 1.0
        self.factor = torch.full((), first, device=device)
        self._since_change = torch.zeros((), dtype=torch.int32, device=device)

    def unscale_(self, parameters: Sequence[Tensor]) -> None:
        """Divide the gradients of `parameters` by the factor."""
        if self.is_used:
            torch._foreach_mul_(gradients(parameters), 1 / self.factor)

    def update(self, *, overflowed: Tensor) -> None:
        """Set the factor for the next update; `overflowed` is a scalar, 1 or 0."""
        if self.is_used:
            torch._amp_update_scale_(
                self.factor, self._since_change, overflowed, 2.0, 0.5, UPDATES_BEFORE_GROWTH
            )

    def state_dict(self) -> dict[str, Tensor]:
        """The state, by name."""
        if not self.is_used:
            return {}
        return {"scale:factor": self.factor, "scale:since_change": self._since_change}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a `state_dict()`; one saved in another precision is ignored."""
        copy_into(self.state_dict(), {**self.state_dict(), **tensors})


def gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradient of each parameter; every one must have one."""
    all_gradients = [each.grad for each in parameters]
    assert all(each is not None for each in all_gradients)
    return cast("list[Tensor]", all_gradients)


def copy_into(own: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy the tensors of `saved` into those of the same name in `own`.

    Raises:
        KeyError: a tensor is missing.
        ValueError: a tensor has another shape.
    """
    for name, tensor in own.items():
        if saved[name].shape != tensor.shape:
            found = tuple(saved[name].shape)
            raise ValueError(f"{name} has shape {found}, expected {tuple(tensor.shape)}")
        tensor.copy_(saved[name])
