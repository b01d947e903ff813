"""Attention maps: how much each position attends to each other one, observed with hooks.

Letters: B batch, S source length, T target length, L layers, H heads.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Literal

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
        raise ValueError("attention maps are of a model in eval mode; call model.eval()")
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
    """Hooks that append the weights (B, H, T, S) of each call of `attention` to `into`."""
    if isinstance(attention, MultiHeadAttention):
        return [attention.register_forward_pre_hook(partial(_weigh, into=into))]
    # nn.Transformer asks nn.MultiheadAttention for no weights.
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
