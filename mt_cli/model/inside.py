"""A look inside a model: who attends to whom, and every tensor's shape from ids to logits.

Observes with hooks; changes neither backend. Letters: B batch, S source length, T target length, L
layers, D d_model, H heads, K head size, F d_ff, V vocabulary.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mt_cli.model.transformer import (
    ACTIVATIONS,
    DecoderLayer,
    EncoderLayer,
    MultiHeadAttention,
    attention_weights,
)
from mt_cli.model.translation_model import TranslationModel

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
    """Weights of every attention when `model` reads `src_ids` (B, S) and predicts from `tgt_in` (B,
    T).

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

        def weigh_again(_module: nn.Module, args: tuple[Tensor, ...], _output: Tensor) -> None:
            q, k, _, bias = args
            into.append(attention_weights(q, k, bias))

        return [attention.attention.register_forward_hook(weigh_again)]
    # nn.Transformer asks nn.MultiheadAttention for no weights.
    asked = {"need_weights": True, "average_attn_weights": False}
    return [
        attention.register_forward_pre_hook(
            lambda _m, args, given: (args, given | asked), with_kwargs=True
        ),
        attention.register_forward_hook(lambda _module, _args, output: into.append(output[1])),
    ]


Level = Literal["model", "layer", "block", "head", "attention"]
"""Level of detail, from coarse to fine; each level includes the ones before it."""
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class TracedTensor:
    """One tensor that was observed."""

    level: Level
    place: str
    """Such as `encoder layer 1, self-attention`; empty for the model as a whole."""
    name: str
    """In the paper's symbols (Vaswani et al. 2017), such as `QKᵀ/√d_k`."""
    letters: str
    """Letters of the legend, one for each dimension, such as `B H T S`."""
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ShapeTrace:
    """The tensors of one forward pass, and the sizes that their letters stand for."""

    legend: dict[str, int]
    """Size that each letter stands for."""
    depths: dict[str, int]
    """Number of layers of `encoder` and `decoder`."""
    tensors: list[TracedTensor]
    """In the order of computation; only the first layer of each stack is traced."""


@torch.no_grad()
def trace_shapes(
    model: TranslationModel, src_ids: Tensor, tgt_in: Tensor, *, level: Level = "attention"
) -> ShapeTrace:
    """Trace `model`, on the scratch backend, while it reads `src_ids` (B, S) and `tgt_in` (B, T),
    to `level`.

    Raises:
        TypeError: the model is on another backend, which cannot be traced.
    """
    encoder, decoder = (
        list(model.get_submodule(f"backend.{stack}.layers").children())
        for stack in ("encoder", "decoder")
    )
    first, second = encoder[0], decoder[0]
    if not isinstance(first, EncoderLayer) or not isinstance(second, DecoderLayer):
        raise TypeError("only the scratch backend can be traced; load the checkpoint with it")
    calls: Calls = {}
    with ExitStack() as hooks:
        for module in model.modules():
            hook = module.register_forward_hook(
                lambda it, args, output: calls.update({it: (*args, output)})
            )
            hooks.enter_context(hook)
        logits = model(src_ids, tgt_in)
    (B, S), T = src_ids.shape, tgt_in.shape[1]
    D, F, H = first.linear1.in_features, first.linear1.out_features, first.self_attn.num_heads
    legend = {
        "B": B,
        "S": S,
        "T": T,
        "D": D,
        "H": H,
        "K": D // H,
        "F": F,
        "V": model.output.out_features,
    }
    scaled = "√d_model · " if model.scale != 1 else ""
    src_embedded, src = calls[model.src_positions]
    tgt_embedded, tgt = calls[model.tgt_positions]
    tensors = [
        _traced("model", "", "source ids", "B S", src_ids),
        _traced("model", "", "target ids, shifted right", "B T", tgt_in),
        _traced("model", "", f"source, embedded: {scaled}E[ids]", "B S D", src_embedded),
        _traced("model", "", "source, plus positions: + PE", "B S D", src),
        *_in_layer(calls, first, "encoder layer 1", "S"),
        _traced("model", "", "memory", "B S D", calls[model.get_submodule("backend.encoder")][-1]),
        _traced("model", "", f"target, embedded: {scaled}E[ids]", "B T D", tgt_embedded),
        _traced("model", "", "target, plus positions: + PE", "B T D", tgt),
        *_in_layer(calls, second, "decoder layer 1", "T"),
        _traced(
            "model",
            "",
            "decoder output",
            "B T D",
            calls[model.get_submodule("backend.decoder")][-1],
        ),
        _traced("model", "", "logits", "B T V", logits),
    ]
    levels = LEVELS[: LEVELS.index(level) + 1]
    shown = [each for each in tensors if each.level in levels]
    return ShapeTrace(legend, {"encoder": len(encoder), "decoder": len(decoder)}, shown)


Calls = dict[nn.Module, tuple[Tensor, ...]]
"""What each module was given, by position, and then what it returned."""


def _traced(level: Level, place: str, name: str, letters: str, tensor: Tensor) -> TracedTensor:
    return TracedTensor(level, place, name, letters, tuple(tensor.shape))


def _in_layer(
    calls: Calls, layer: EncoderLayer | DecoderLayer, place: str, length: str
) -> Iterator[TracedTensor]:
    letters = f"B {length} D"
    x = "LayerNorm(x)" if layer.is_pre_norm else "x"
    linear1 = "xW₁ + b₁"
    activated = (
        f"max(0, {linear1})" if layer.activation is ACTIVATIONS["relu"] else f"GELU({linear1})"
    )

    yield _traced("layer", place, "x", letters, calls[layer][0])
    yield from _in_attention(calls, layer.self_attn, f"{place}, self-attention", length)
    yield _traced("layer", place, f"self-attention({x})", letters, calls[layer.self_attn][-1])
    if isinstance(layer, DecoderLayer):
        cross, memory = layer.multihead_attn, calls[layer][1]
        yield from _in_attention(calls, cross, f"{place}, cross-attention", length, memory)
        yield _traced("layer", place, f"cross-attention({x}, memory)", letters, calls[cross][-1])
    ffn = calls[layer.linear2][-1]
    yield _traced(
        "block", f"{place}, feed-forward", linear1, f"B {length} F", calls[layer.linear1][-1]
    )
    yield _traced("block", f"{place}, feed-forward", f"{activated}W₂ + b₂", letters, ffn)
    yield _traced("layer", place, f"FFN({x})", letters, ffn)
    yield _traced("layer", place, "output", letters, calls[layer][-1])


def _in_attention(
    calls: Calls,
    attention: MultiHeadAttention,
    place: str,
    queries: str,
    memory: Tensor | None = None,
) -> Iterator[TracedTensor]:
    x, *_, output = calls[attention]
    q, k, v, bias, heads = calls[attention.attention]
    joined = calls[attention.out_proj][0]
    keys = queries if memory is None else "S"
    yield _traced("block", place, "Q", f"B {queries} D", x)
    yield _traced("block", place, "K, V", f"B {keys} D", x if memory is None else memory)
    for name, projected, length in (("Q", q, queries), ("K", k, keys), ("V", v, keys)):
        yield _traced("head", place, f"{name}W₁^{name}", f"B {length} K", projected[:, 0])
    each = f"B H {queries} {keys}"
    bias_letters = f"{queries} {keys}" if bias.dim() == 2 else f"B 1 1 {keys}"
    yield _traced("attention", place, "QKᵀ/√d_k", each, q @ k.mT / math.sqrt(q.shape[-1]))
    yield _traced("attention", place, "mask", bias_letters, bias)
    yield _traced("attention", place, "softmax(QKᵀ/√d_k)", each, attention_weights(q, k, bias))
    yield _traced("attention", place, "softmax(QKᵀ/√d_k)V", f"B H {queries} K", heads)
    yield _traced("head", place, "head₁", f"B {queries} K", heads[:, 0])
    yield _traced("block", place, "Concat(head₁, …, head_h)", f"B {queries} D", joined)
    yield _traced("block", place, "Concat(head₁, …, head_h)W^O", f"B {queries} D", output)
