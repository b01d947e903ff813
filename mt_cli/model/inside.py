"""Looking inside a model with hooks: attention maps, and the shapes of its tensors.

Letters: B batch, S source length, T target length, L layers, H heads.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Literal, TypedDict

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mt_cli.model.model import TranslationModel
from mt_cli.model.transformer import MultiHeadAttention, attention_weights

MapKind = Literal["encoder", "decoder", "cross"]
"""Source to source, target to target, target to source."""
PLACES: Mapping[MapKind, tuple[str, str]] = {
    "encoder": ("encoder", "self_attn"),
    "decoder": ("decoder", "self_attn"),
    "cross": ("decoder", "multihead_attn"),
}
"""Stack and attention module of each kind; both backends use the same names."""


@torch.no_grad()
def attention_maps(
    model: TranslationModel,
    src_ids: Tensor,
    tgt_in: Tensor,
    *,
    kinds: Iterable[MapKind] = tuple(PLACES),
    layers: slice = slice(None),
) -> dict[MapKind, Tensor]:
    """Weights of every attention when `model` reads `src_ids` (B, S) and `tgt_in` (B, T).

    Returns a tensor for each of `kinds`: `encoder` (L, B, H, S, S), `decoder` (L, B, H, T, T),
    `cross` (L, B, H, T, S). L counts the layers that `layers` selects. Each row of a map is a
    distribution over the positions that may be attended.
    """
    if model.training:
        raise ValueError("attention maps need the model in eval mode; call model.eval()")
    seen: dict[MapKind, list[Tensor]] = {kind: [] for kind in kinds}
    with ExitStack() as hooks:
        for kind, weights in seen.items():
            stack, name = PLACES[kind]
            for layer in list(model.get_submodule(f"backend.{stack}.layers").children())[layers]:
                for hook in _listen(layer.get_submodule(name), weights):
                    hooks.enter_context(hook)
        model.hidden(src_ids, tgt_in)
    return {kind: torch.stack(weights) for kind, weights in seen.items()}


def _listen(attention: nn.Module, into: list[Tensor]) -> list[RemovableHandle]:
    """Add hooks that append the weights (B, H, T, S) of each call of `attention` to `into`."""
    if isinstance(attention, MultiHeadAttention):
        return [attention.register_forward_pre_hook(partial(_weigh, into=into))]
    # nn.Transformer does not ask nn.MultiheadAttention for weights.
    asked = {"need_weights": True, "average_attn_weights": False}
    return [
        attention.register_forward_pre_hook(
            lambda _module, args, given: (args, given | asked), with_kwargs=True
        ),
        attention.register_forward_hook(lambda _module, _args, output: into.append(output[1])),
    ]


def _weigh(attention: nn.Module, args: tuple[Tensor, ...], *, into: list[Tensor]) -> None:
    assert isinstance(attention, MultiHeadAttention)
    x, attn_bias, *memory = args
    q, k, _ = attention.project(x, memory[0] if memory else None)
    into.append(attention_weights(q, k, attn_bias))


class ModuleShapes(TypedDict):
    """The shapes of a module's inputs and output."""

    name: str
    """Such as `backend.encoder.layers.0.self_attn`."""
    inputs: list[tuple[int, ...]]
    output: tuple[int, ...]


@torch.no_grad()
def trace_shapes(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> list[ModuleShapes]:
    """Run `model` on `src_ids` (B, S) and `tgt_in` (B, T), and record the shapes in its modules.

    Modules are in the order in which they finish. Only the first layer of each stack is traced,
    because all are alike.
    """
    traced: list[ModuleShapes] = []

    def listen(name: str, module: nn.Module) -> None:
        def note(_module: nn.Module, args: tuple[object, ...], output: object) -> None:
            inputs = [tuple(each.shape) for each in args if isinstance(each, Tensor)]
            result = output[0] if isinstance(output, tuple) else output
            assert isinstance(result, Tensor)
            traced.append({"name": name, "inputs": inputs, "output": tuple(result.shape)})

        hooks.enter_context(module.register_forward_hook(note))

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            _, is_in_layer, place = name.partition(".layers.")
            is_first_layer = not is_in_layer or place.split(".")[0] == "0"
            if name and is_first_layer and not isinstance(module, nn.Dropout):
                listen(name, module)
        logits = model(src_ids, tgt_in)
    traced.append({"name": "logits", "inputs": [], "output": tuple(logits.shape)})
    return traced
