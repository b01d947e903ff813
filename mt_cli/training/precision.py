"""Training in 16 bits: a copy of the model computes, and the model's own weights stay in fp32.

They are what Micikevicius et al. (2018) call master weights (3.1): an update is often too small to
change a number of 16 bits.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from mt_cli.model.translation_model import TranslationModel

FIRST_SCALE_LOG2 = 16
"""The first loss scale can be halved so often before it is 1."""
UPDATES_BEFORE_GROWTH = 2000


class WorkingCopy:
    """The copy whose layers compute in a precision of their own; in fp32 it is the model itself.

    Encoder and decoder layers are copied. Embeddings and output layer are the model's own: the
    gradient of a frequent word's embedding is a sum of very many terms.
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
        """Take over the model's weights."""
        if self._copies:
            torch._foreach_copy_(self._copies, self._masters)

    @torch.no_grad()
    def add_gradients_to_master(self) -> None:
        """Add the copy's gradients to the model's, in fp32, and drop them."""
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

    It is halved where a gradient has overflowed, and doubled after many updates without that. It
    stays on the device, so no update waits for its value. In other precisions it is 1.
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
        """Choose the factor of the next update; `overflowed` is a scalar, 1 or 0."""
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
        """Continue from what `state_dict()` returned; after another precision, start afresh."""
        copy_into(self.state_dict(), {**self.state_dict(), **tensors})


def gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradient of each parameter; every one must have one."""
    found = [each.grad for each in parameters]
    assert all(each is not None for each in found)
    return cast("list[Tensor]", found)


def copy_into(own: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy into each tensor of `own` the one of the same name in `saved`.

    Raises:
        KeyError: a tensor is missing.
        ValueError: one has another shape.
    """
    for name, tensor in own.items():
        if saved[name].shape != tensor.shape:
            found = tuple(saved[name].shape)
            raise ValueError(f"{name} has shape {found}, expected {tuple(tensor.shape)}")
        tensor.copy_(saved[name])
