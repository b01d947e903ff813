"""Shapes of a model's tensors on the way from ids to logits, observed with hooks.

Letters: B batch, S source length, T target length.
"""

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt_cli.model.model import TranslationModel


@dataclass(frozen=True)
class ModuleShapes:
    """What one module was given and what it returned."""

    name: str
    """Such as `backend.encoder.layers.0.self_attn`."""
    inputs: list[tuple[int, ...]]
    output: tuple[int, ...]


@torch.no_grad()
def trace_shapes(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> list[ModuleShapes]:
    """The modules of `model` in the order in which they finish, with the shapes of their tensors.

    It reads `src_ids` (B, S) and `tgt_in` (B, T). All layers are alike, so that only the first one
    of each stack is traced.
    """
    traced: list[ModuleShapes] = []

    def listen(name: str, module: nn.Module) -> None:
        def note(_module: nn.Module, args: tuple[object, ...], output: object) -> None:
            inputs = [tuple(each.shape) for each in args if isinstance(each, Tensor)]
            result = output[0] if isinstance(output, tuple) else output
            assert isinstance(result, Tensor)
            traced.append(ModuleShapes(name, inputs, tuple(result.shape)))

        hooks.enter_context(module.register_forward_hook(note))

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            _, is_in_layer, place = name.partition(".layers.")
            is_first_layer = not is_in_layer or place.split(".")[0] == "0"
            if name and is_first_layer and not isinstance(module, nn.Dropout):
                listen(name, module)
        logits = model(src_ids, tgt_in)
    traced.append(ModuleShapes("logits", [], tuple(logits.shape)))
    return traced
