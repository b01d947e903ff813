"""A look inside a model: who attends to whom, and every tensor's shape from ids to logits.

Observes with hooks; changes neither backend.
Letters: B batch, S source length, T target length, L layers, D d_model, H heads, K head size, F d_ff, V
vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Mapping
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
    """Weights of every attention when `model` reads `src_ids` (B, S) and predicts from `tgt_in` (B, T).

    Returns a tensor for each of `kinds`: `encoder` (L, B, H, S, S), `decoder` (L, B, H, T, T), `cross`
    (L, B, H, T, S). L counts the layers that `layers` selects. Each row of a map is a distribution over the
    positions that may be attended.
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
        attention.register_forward_pre_hook(lambda _m, args, given: (args, given | asked), with_kwargs=True),
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


class _Trace(ExitStack):
    """The tensors recorded so far, and the hooks that record them, which go when it is left."""

    def __init__(self, level: Level) -> None:
        super().__init__()
        self._levels = LEVELS[: LEVELS.index(level) + 1]
        self.tensors: list[TracedTensor] = []

    def add(self, level: Level, place: str, name: str, letters: str, tensor: Tensor) -> None:
        if level in self._levels:
            self.tensors.append(TracedTensor(level, place, name, letters, tuple(tensor.shape)))

    def add_output(self, module: nn.Module, level: Level, place: str, name: str, letters: str) -> None:
        """Add what `module` returns, at each of its calls."""
        self.on(
            module.register_forward_hook,
            lambda output, *_, **__: self.add(level, place, name, letters, output),
        )

    def on(self, register: Callable[..., RemovableHandle], see: Callable[..., None]) -> None:
        """Call `see` with the result, if `register` waits for it, and the arguments of each call."""
        hook = register(lambda _, args, named, *result: see(*result, *args, **named), with_kwargs=True)
        self.enter_context(hook)


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
    """Trace `model`, on the scratch backend, while it reads `src_ids` (B, S) and `tgt_in` (B, T), to `level`.

    Raises:
        TypeError: the model is on another backend, which cannot be traced.
    """
    encoder, decoder = (
        list(model.get_submodule(f"backend.{stack}.layers").children()) for stack in ("encoder", "decoder")
    )
    first, second = encoder[0], decoder[0]
    if not isinstance(first, EncoderLayer) or not isinstance(second, DecoderLayer):
        raise TypeError("only the scratch backend can be traced; load the checkpoint with it")
    with _Trace(level) as trace:
        _watch_input(trace, model.src_positions, "source", "S", scaled=model.scale != 1)
        _watch_layer(trace, first, "encoder layer 1", "S")
        trace.add_output(model.get_submodule("backend.encoder"), "model", "", "memory", "B S D")
        _watch_input(trace, model.tgt_positions, "target", "T", scaled=model.scale != 1)
        _watch_layer(trace, second, "decoder layer 1", "T")
        trace.add_output(model.get_submodule("backend.decoder"), "model", "", "decoder output", "B T D")
        trace.add_output(model.output, "model", "", "logits", "B T V")
        trace.add("model", "", "source ids", "B S", src_ids)
        trace.add("model", "", "target ids, shifted right", "B T", tgt_in)
        model(src_ids, tgt_in)
    (B, S), T = src_ids.shape, tgt_in.shape[1]
    D, F, H = first.linear1.in_features, first.linear1.out_features, first.self_attn.num_heads
    legend = {"B": B, "S": S, "T": T, "D": D, "H": H, "K": D // H, "F": F, "V": model.output.out_features}
    return ShapeTrace(legend, {"encoder": len(encoder), "decoder": len(decoder)}, trace.tensors)


def _watch_input(trace: _Trace, positions: nn.Module, side: str, length: str, *, scaled: bool) -> None:
    def see(output: Tensor, embedded: Tensor, **_: object) -> None:
        factor = "√d_model · " if scaled else ""
        trace.add("model", "", f"{side}, embedded: {factor}E[ids]", f"B {length} D", embedded)
        trace.add("model", "", f"{side}, plus positions: + PE", f"B {length} D", output)

    trace.on(positions.register_forward_hook, see)


def _watch_layer(trace: _Trace, layer: EncoderLayer | DecoderLayer, place: str, length: str) -> None:
    letters = f"B {length} D"
    x = "LayerNorm(x)" if layer.is_pre_norm else "x"
    linear1 = "xW₁ + b₁"
    activated = f"max(0, {linear1})" if layer.activation is ACTIVATIONS["relu"] else f"GELU({linear1})"

    trace.on(layer.register_forward_pre_hook, lambda x, *_: trace.add("layer", place, "x", letters, x))
    _watch_attention(trace, layer.self_attn, f"{place}, self-attention", length, length)
    trace.add_output(layer.self_attn, "layer", place, f"self-attention({x})", letters)
    if isinstance(layer, DecoderLayer):
        _watch_attention(trace, layer.multihead_attn, f"{place}, cross-attention", length, "S")
        trace.add_output(layer.multihead_attn, "layer", place, f"cross-attention({x}, memory)", letters)
    trace.add_output(layer.linear1, "block", f"{place}, feed-forward", linear1, f"B {length} F")
    trace.add_output(layer.linear2, "block", f"{place}, feed-forward", f"{activated}W₂ + b₂", letters)
    trace.add_output(layer.linear2, "layer", place, f"FFN({x})", letters)
    trace.add_output(layer, "layer", place, "output", letters)


def _watch_attention(
    trace: _Trace, attention: MultiHeadAttention, place: str, queries: str, keys: str
) -> None:
    def see_inputs(x: Tensor, _bias: Tensor, *, memory: Tensor | None = None) -> None:
        trace.add("block", place, "Q", f"B {queries} D", x)
        trace.add("block", place, "K, V", f"B {keys} D", x if memory is None else memory)

    def see_heads(heads: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> None:
        for name, projected, length in (("Q", q, queries), ("K", k, keys), ("V", v, keys)):
            trace.add("head", place, f"{name}W₁^{name}", f"B {length} K", projected[:, 0])
        each = f"B H {queries} {keys}"
        bias_letters = f"{queries} {keys}" if bias.dim() == 2 else f"B 1 1 {keys}"
        trace.add("attention", place, "QKᵀ/√d_k", each, q @ k.mT / math.sqrt(q.shape[-1]))
        trace.add("attention", place, "mask", bias_letters, bias)
        trace.add("attention", place, "softmax(QKᵀ/√d_k)", each, attention_weights(q, k, bias))
        trace.add("attention", place, "softmax(QKᵀ/√d_k)V", f"B H {queries} K", heads)
        trace.add("head", place, "head₁", f"B {queries} K", heads[:, 0])

    def see_joined(output: Tensor, joined: Tensor) -> None:
        trace.add("block", place, "Concat(head₁, …, head_h)", f"B {queries} D", joined)
        trace.add("block", place, "Concat(head₁, …, head_h)W^O", f"B {queries} D", output)

    trace.on(attention.register_forward_pre_hook, see_inputs)
    trace.on(attention.attention.register_forward_hook, see_heads)
    trace.on(attention.out_proj.register_forward_hook, see_joined)
