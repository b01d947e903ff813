"""The decoder one position at a time: what it has computed is kept, and a step takes few calls of PyTorch.

A call takes some microseconds however little there is to do, and one step of one sentence is little. So the
same sums as in `layers` are written flat here, without modules, dropout and gradients.
Letters: B batch, N beams, R = B·N rows, S source length, D d_model, H heads, K head size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.model.attention import as_bias, pad_bias, pad_keys
from mt_cli.model.layers import DecoderLayer

TensorFunction = Callable[[Tensor], Tensor]


@dataclass
class CachedState:
    """Keys and values of all layers, so that a step computes one position only."""

    layers: list["CachedLayer"]
    src_bias: Tensor
    """Which of the source may be attended, (B, H, 1, S), after `as_bias` and `pad_bias`."""
    past: Tensor
    """Which slots are of each beam's own past, (B, N, shown), after `as_bias` and `pad_bias`."""
    used: int = 0
    """Slots filled in each layer: one for every beam at every step."""
    length: int = 0
    src_of_heads: Tensor = field(init=False)
    """`src_bias` as `advance` leaves it for the layers, (B·H, 1, S)."""
    past_of_heads: Tensor = field(init=False)
    """`past` as `advance` leaves it for them, (B·H, N, shown)."""

    def keep(self, rows: Tensor) -> None:
        """Go on with the sentences `rows` (M,) only; only those that change places move."""
        places = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
        for layer in self.layers:
            layer.move(rows[places], places, num_rows=len(rows), used=self.used)
        self.src_bias, self.past = self.src_bias[rows], self.past[rows]

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b go on from its beam `beams[b, n]`, (B, N).

        No key or value moves: a beam that goes on from another shares its slots, and only marks them.
        """
        sentences = torch.arange(len(beams), device=beams.device).unsqueeze(1)  # (B, 1)
        self.past = self.past[sentences, beams]

    def advance(self, num_beams: int) -> None:
        """Make room for one more position of each of `num_beams` beams, which is of its own past alone."""
        first, self.used = self.used, self.used + num_beams
        self.length += 1
        if self.used > self.past.shape[-1]:
            new = self.used - self.past.shape[-1]
            self.past = pad_bias(F.pad(self.past, (0, new), value=-math.inf))
        self.past[:, :, first : self.used].diagonal(dim1=1, dim2=2).fill_(0)
        H = self.src_bias.shape[1]
        self.src_of_heads = self.src_bias.flatten(0, 1)
        self.past_of_heads = self.past.unsqueeze(1).expand(-1, H, -1, -1).flatten(0, 1)


def start(layers: list[DecoderLayer], memory: Tensor, src_mask: Tensor) -> CachedState:
    """State of the decoder `layers` over `memory` (B, S, D) under the boolean `src_mask` (B, S)."""
    cached = [CachedLayer(layer, memory) for layer in layers]
    hidden = pad_bias(as_bias(src_mask))[:, None, None, :]  # (B, 1, 1, S)
    every_head = hidden.expand(-1, cached[0].num_heads, -1, -1).contiguous()
    return CachedState(cached, every_head, memory.new_empty(len(memory), 1, 0))


class CachedLayer:
    """A decoder layer with the keys and values of one batch."""

    def __init__(self, layer: DecoderLayer, memory: Tensor) -> None:
        """`layer` is about to decode over `memory` (B, S, D)."""
        D = memory.shape[-1]
        itself, across = layer.self_attn, layer.multihead_attn
        k, v = pad_keys(*across.project_memory(memory))  # each (B, H, S, K)
        B, H, _, K = k.shape
        self.num_heads = H
        self.memory_k, self.memory_v = k.mT.contiguous(), v.contiguous()  # (B, H, K, S) and (B, H, S, K)
        # Of what the beams have seen: a slot for each position of each beam, as it came.
        self.self_k, self.self_v = k.new_empty(B, H, K, 0), k.new_empty(B, H, 0, K)
        self._refresh_views(0)
        self._project_all = _linear(itself.in_proj_weight, itself.in_proj_bias)
        self._join = _linear(itself.out_proj.weight, itself.out_proj.bias)
        self._project_query = _linear(across.in_proj_weight[:D], across.in_proj_bias[:D])
        self._join_across = _linear(across.out_proj.weight, across.out_proj.bias)
        self._widen = _linear(layer.linear1.weight, layer.linear1.bias)
        self._narrow = _linear(layer.linear2.weight, layer.linear2.bias)
        self._activation = layer.activation
        self._is_pre_norm = layer.is_pre_norm
        # Functions of the class: bound to this layer, they would keep it and its tensors alive.
        self._sublayers = (
            (_norm(layer.norm1), type(self)._attend_to_past),
            (_norm(layer.norm2), type(self)._attend_to_memory),
            (_norm(layer.norm3), type(self)._feed_forward),
        )

    def step(self, x: Tensor, state: CachedState) -> Tensor:
        """Output (R, D) at the position to which `state` has advanced, given `x` (R, D)."""
        for norm, sublayer in self._sublayers:
            if self._is_pre_norm:
                x = x + sublayer(self, norm(x), state)
            else:
                x = norm(x + sublayer(self, x, state))
        return x

    def move(self, sources: Tensor, places: Tensor, *, num_rows: int, used: int) -> None:
        """Put the sentences `sources` (P,) at `places` (P,), and keep the first `num_rows` sentences."""
        self.self_k[places, :, :, :used] = self.self_k[sources, :, :, :used]
        self.self_v[places, :, :used] = self.self_v[sources, :, :used]
        self.memory_k[places] = self.memory_k[sources]
        self.memory_v[places] = self.memory_v[sources]
        self.self_k, self.self_v = self.self_k[:num_rows], self.self_v[:num_rows]
        self.memory_k, self.memory_v = self.memory_k[:num_rows], self.memory_v[:num_rows]
        self._refresh_views(self._shown)

    def _attend_to_past(self, x: Tensor, state: CachedState) -> Tensor:
        B, N, shown = state.past.shape
        first = state.used - N
        if shown > self._shown:
            self._make_room(shown, filled=first)
        q, k, v = self._project_all(x).view(B, N, 3, self.num_heads, -1).unbind(2)  # each (B, N, H, K)
        self.self_k.narrow(3, first, N).copy_(k.permute(0, 2, 3, 1))
        self.self_v.narrow(2, first, N).copy_(v.transpose(1, 2))
        return self._join(_attention(q, self._past_k, self._past_v, state.past_of_heads))

    def _attend_to_memory(self, x: Tensor, state: CachedState) -> Tensor:
        # All beams of a sentence read the same memory, as so many queries.
        B, N, _ = state.past.shape
        q = self._project_query(x).view(B, N, self.num_heads, -1)
        return self._join_across(_attention(q, self._across_k, self._across_v, state.src_of_heads))

    def _feed_forward(self, x: Tensor, _state: CachedState) -> Tensor:
        return self._narrow(self._activation(self._widen(x)))

    def _make_room(self, shown: int, *, filled: int) -> None:
        """Have at least `shown` slots, of which the first `filled` are in use."""
        B, H, K, room = self.self_k.shape
        if shown > room:
            # Twice the room each time, so that an entry is copied about once. What is empty is hidden, but
            # must still be a number.
            room = max(shown, 2 * room)
            k, v = self.self_k.new_zeros(B, H, K, room), self.self_v.new_zeros(B, H, room, K)
            k[..., :filled] = self.self_k[..., :filled]
            v[:, :, :filled] = self.self_v[:, :, :filled]
            self.self_k, self.self_v = k, v
        self._refresh_views(shown)

    def _refresh_views(self, shown: int) -> None:
        """Keys and values as they are multiplied, (B·H, K, S) and (B·H, S, K): the first `shown` slots."""
        self._shown = shown
        self._past_k = self.self_k.flatten(0, 1)[..., :shown]
        self._past_v = self.self_v.flatten(0, 1)[:, :shown]
        self._across_k, self._across_v = self.memory_k.flatten(0, 1), self.memory_v.flatten(0, 1)


def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """`q` (B, N, H, K) attends to `k` (B·H, K, S) and `v` (B·H, S, K): (R, D).

    `bias` (B·H, 1 or N, S) is as `as_bias` makes it.
    """
    B, N, H, K = q.shape
    q = q.transpose(1, 2).reshape(B * H, N, K)
    weights = torch.baddbmm(bias, q, k, alpha=1 / math.sqrt(K)).softmax(-1)  # (B·H, N, S)
    heads = torch.bmm(weights, v).view(B, H, N, K)
    return heads.transpose(1, 2).reshape(B * N, H * K)


def _linear(weight: Tensor, bias: Tensor) -> TensorFunction:
    device = weight.device.type
    if torch.is_autocast_enabled(device):  # which would convert what is no parameter at every step
        dtype = torch.get_autocast_dtype(device)
        weight, bias = weight.to(dtype), bias.to(dtype)
    turned = weight.t()
    return lambda x: torch.addmm(bias, x, turned)


def _norm(norm: nn.LayerNorm) -> TensorFunction:
    shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: F.layer_norm(x, shape, weight, bias, eps)
