"""The `scratch` backend: our layers, and their decoder one position at a time.

It caches keys and values, and makes few PyTorch calls a step.

Every PyTorch call costs some microseconds, and one step of one sentence has little to compute. So
the computation of `transformer` is repeated here in plain functions, without modules, dropout and
gradients. Letters: B batch, N beams, R = B·N rows, S source length, D d_model, H heads, K head
size.

The cache has one slot for each position of each beam. `used` slots hold a key, `shown` slots are
multiplied (those and padding), `room` is allocated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.config.schema import ModelConfig
from mt_cli.model.transformer import Decoder, DecoderLayer, Encoder, as_bias, causal_mask

TensorFunction = Callable[[Tensor], Tensor]
Residual = Callable[[Tensor, Tensor], Tensor]
SIMD_FLOATS = 16
"""32-bit numbers that fit into the widest vector register of a CPU."""


@dataclass
class CachedState:
    """Keys and values of all layers, so that a step computes one position only."""

    layers: list["CachedLayer"]
    src_bias: Tensor
    """Hides source padding: a bias (B, H, 1, S) from `as_bias` and `pad_bias`."""
    past_bias: Tensor
    """Hides every slot outside a beam's own past: a bias (B, N, shown), padded by `pad_bias`."""
    used: int = 0
    """Slots filled in each layer: every step fills one for each beam."""
    length: int = 0
    src_bias_per_head: Tensor = field(init=False)
    """`src_bias` with batch and heads merged, (B·H, 1, S); set by `advance`."""
    past_bias_per_head: Tensor = field(init=False)
    """`past_bias` repeated for every head, (B·H, N, shown); set by `advance`."""

    def select(self, sentences: Tensor) -> None:
        """Keep only `sentences` (M,), in that order; copies those that change places."""
        in_place = torch.arange(len(sentences), device=sentences.device)
        targets = (sentences != in_place).nonzero().squeeze(1)
        for layer in self.layers:
            layer.keep(sentences[targets], targets, num_sentences=len(sentences), used=self.used)
        self.src_bias = self.src_bias[sentences]
        self.past_bias = self.past_bias[sentences]

    def reorder(self, parents: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `parents[b, n]`, of (B, N).

        No key or value is copied: beams with a common past share its slots, and `past_bias` records
        which beams may attend to them.
        """
        self.past_bias = self.past_bias.gather(
            1, parents.unsqueeze(-1).expand(-1, -1, self.past_bias.shape[-1])
        )

    def advance(self, num_beams: int) -> None:
        """Add one slot for each of `num_beams` beams, which only that beam sees."""
        first = self.used
        self.used += num_beams
        self.length += 1
        if self.used > self.past_bias.shape[-1]:
            new = self.used - self.past_bias.shape[-1]
            self.past_bias = pad_bias(F.pad(self.past_bias, (0, new), value=-math.inf))
        self.past_bias[:, :, first : self.used].diagonal(dim1=1, dim2=2).fill_(0)
        H = self.src_bias.shape[1]
        self.src_bias_per_head = self.src_bias.flatten(0, 1)
        self.past_bias_per_head = self.past_bias.unsqueeze(1).expand(-1, H, -1, -1).flatten(0, 1)


def init_cache(layers: list[DecoderLayer], memory: Tensor, src_bias: Tensor) -> CachedState:
    """State of the decoder `layers` over `memory` (B, S, D); `src_bias` is (B, 1, 1, S)."""
    cached = [CachedLayer(layer, memory) for layer in layers]
    every_head = pad_bias(src_bias).expand(-1, cached[0].num_heads, -1, -1)
    dtype = cached[0].memory_v.dtype
    past = memory.new_empty(len(memory), 1, 0, dtype=dtype)
    return CachedState(cached, every_head.to(dtype).contiguous(), past)


class CachedLayer:
    """A decoder layer with the keys and values of one batch."""

    def __init__(self, layer: DecoderLayer, memory: Tensor) -> None:
        """Prepare `layer` for decoding over `memory` (B, S, D)."""
        D = memory.shape[-1]
        self_attn = layer.self_attn
        cross_attn = layer.multihead_attn
        k, v = pad_keys(*cross_attn.project_memory(memory))  # each (B, H, S, K)
        B, H, _, K = k.shape
        self.num_heads = H
        self.memory_k = _key_layout(k)  # (B, H, K, S)
        self.memory_v = v.contiguous()  # (B, H, S, K)
        # Of the target so far: one slot for each position of each beam, in order of arrival.
        self.self_k = k.new_empty(B, H, K, 0)
        self.self_v = k.new_empty(B, H, 0, K)
        self._refresh_views(0)
        self._project_all = _linear(self_attn.in_proj_weight, self_attn.in_proj_bias)
        self._project_query = _linear(cross_attn.in_proj_weight[:D], cross_attn.in_proj_bias[:D])
        self._linear1 = _linear(layer.linear1.weight, layer.linear1.bias)
        self._activation = layer.activation
        # The last linear map of each sublayer, added to the residual.
        self._add_past = _adding(self_attn.out_proj)
        self._add_memory = _adding(cross_attn.out_proj)
        self._add_feed_forward = _adding(layer.linear2)
        self._norm1 = _norm(layer.norm1)
        self._norm2 = _norm(layer.norm2)
        self._norm3 = _norm(layer.norm3)
        self._is_pre_norm = layer.is_pre_norm

    def step(self, x: Tensor, state: CachedState) -> Tensor:
        """Output (R, D) at the position to which `state` has advanced; overwrites `x` (R, D)."""
        x = self._add_past(x, self._attend_to_past(self._before(self._norm1, x), state))
        x = self._after(self._norm1, x)
        x = self._add_memory(x, self._attend_to_memory(self._before(self._norm2, x), state))
        x = self._after(self._norm2, x)
        x = self._add_feed_forward(x, self._feed_forward_hidden(self._before(self._norm3, x)))
        return self._after(self._norm3, x)

    def _before(self, norm: TensorFunction, x: Tensor) -> Tensor:
        """What a sublayer takes: `x` (R, D), normalized if the norm comes first."""
        return norm(x) if self._is_pre_norm else x

    def _after(self, norm: TensorFunction, x: Tensor) -> Tensor:
        return x if self._is_pre_norm else norm(x)

    def keep(self, sources: Tensor, targets: Tensor, *, num_sentences: int, used: int) -> None:
        """Copy sentences `sources` (P,) over `targets` (P,), then keep the first ones."""
        self.self_k[targets, :, :, :used] = self.self_k[sources, :, :, :used]
        self.self_v[targets, :, :used] = self.self_v[sources, :, :used]
        self.memory_k[targets] = self.memory_k[sources]
        self.memory_v[targets] = self.memory_v[sources]
        self.self_k = self.self_k[:num_sentences]
        self.self_v = self.self_v[:num_sentences]
        self.memory_k = self.memory_k[:num_sentences]
        self.memory_v = self.memory_v[:num_sentences]
        self._refresh_views(self._shown)

    def _attend_to_past(self, x: Tensor, state: CachedState) -> Tensor:
        B, N, shown = state.past_bias.shape
        first = state.used - N
        if shown > self._shown:
            self._make_room(shown, filled=first)
        packed = self._project_all(x).view(B, N, 3, self.num_heads, -1)
        q, k, v = packed.unbind(2)  # each (B, N, H, K)
        self.self_k.narrow(3, first, N).copy_(k.permute(0, 2, 3, 1))
        self.self_v.narrow(2, first, N).copy_(v.transpose(1, 2))
        return _attention(q, self._past_k, self._past_v, state.past_bias_per_head)

    def _attend_to_memory(self, x: Tensor, state: CachedState) -> Tensor:
        # All beams of a sentence share its memory: they are N queries of one attention.
        B, N, _ = state.past_bias.shape
        q = self._project_query(x).view(B, N, self.num_heads, -1)
        return _attention(q, self._cross_k, self._cross_v, state.src_bias_per_head)

    def _feed_forward_hidden(self, x: Tensor) -> Tensor:
        return self._activation(self._linear1(x))  # (R, F)

    def _make_room(self, shown: int, *, filled: int) -> None:
        """Allocate at least `shown` slots; the first `filled` hold a key."""
        B, H, K, room = self.self_k.shape
        if shown > room:
            # Doubling the room copies each entry about once. Empty slots are hidden, but must be
            # numbers: a NaN would still spread.
            room = max(shown, 2 * room)
            v = self.self_v.new_zeros(B, H, room, K)
            k = _key_layout(torch.zeros_like(v))
            k[..., :filled] = self.self_k[..., :filled]
            v[:, :, :filled] = self.self_v[:, :, :filled]
            self.self_k = k
            self.self_v = v
        self._refresh_views(shown)

    def _refresh_views(self, shown: int) -> None:
        """Make views of the first `shown` slots as they are multiplied, heads merged into B."""
        self._shown = shown
        self._past_k = self.self_k.flatten(0, 1)[..., :shown]
        self._past_v = self.self_v.flatten(0, 1)[:, :shown]
        self._cross_k = self.memory_k.flatten(0, 1)
        self._cross_v = self.memory_v.flatten(0, 1)


def _key_layout(k: Tensor) -> Tensor:
    """Keys `k` (B, H, S, K) as (B, H, K, S), in memory as the device multiplies queries by them."""
    return k.contiguous().mT if k.is_cuda else k.mT.contiguous()


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor) -> Tensor:
    """`q` (B, N, H, K) attends to `k` (B·H, K, S) and `v` (B·H, S, K): (R, D).

    `attn_bias` (B·H, 1 or N, S) is a mask converted by `as_bias`.
    """
    B, N, H, K = q.shape
    q = q.transpose(1, 2)  # (B, H, N, K)
    if q.is_cuda:  # all of it in one kernel, which reads the keys of a position together
        k = k.mT.view(B, H, -1, K)
        v = v.view(B, H, -1, K)
        attn_bias = attn_bias.view(B, H, *attn_bias.shape[1:])
        heads = F.scaled_dot_product_attention(q, k, v, attn_bias)
    else:
        q = q.reshape(B * H, N, K)
        weights = torch.baddbmm(attn_bias, q, k, alpha=1 / math.sqrt(K)).softmax(-1)  # (B·H, N, S)
        heads = torch.bmm(weights, v).view(B, H, N, K)
    return heads.transpose(1, 2).reshape(B * N, H * K)


def _linear(weight: Tensor, bias: Tensor) -> TensorFunction:
    device = weight.device.type
    if torch.is_autocast_enabled(device):  # it would convert non-parameters at every step
        dtype = torch.get_autocast_dtype(device)
        weight = weight.to(dtype)
        bias = bias.to(dtype)
    transposed = weight.t()
    return lambda x: torch.addmm(bias, x, transposed)


def _adding(linear: nn.Linear) -> Residual:
    """Adds `linear` of its second argument to its first, which is overwritten."""
    if torch.is_autocast_enabled(linear.weight.device.type):  # it converts no tensor in place
        function = _linear(linear.weight, linear.bias)
        return lambda x, y: x + function(y)
    transposed = linear.weight.t()
    bias = linear.bias
    return lambda x, y: x.addmm_(y, transposed).add_(bias)


def _norm(norm: nn.Module) -> TensorFunction:
    if type(norm) is not nn.LayerNorm:  # that of somebody's own backend
        return norm
    shape = norm.normalized_shape
    weight = norm.weight
    bias = norm.bias
    eps = norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


def pad_keys(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Append zeros to keys and values `k`, `v` (B, H, S, K); `pad_bias` hides them.

    On a CPU, PyTorch's softmax takes five times as long over a row that does not fill a vector
    register.
    """
    extra = _missing_keys(k.shape[2], device=k.device.type)
    if not extra:
        return k, v
    # A CPU keeps them as (B, H, K, S): see `_key_layout`.
    return F.pad(k.mT, (0, extra)).mT, F.pad(v, (0, 0, 0, extra))


def pad_bias(bias: Tensor) -> Tensor:
    """Extend `bias` (…, S) to the zeros that `pad_keys` appends, and hide them."""
    extra = _missing_keys(bias.shape[-1], device=bias.device.type)
    return F.pad(bias, (0, extra), value=-math.inf) if extra else bias


def _missing_keys(number: int, *, device: str) -> int:
    """Keys to append: up to one full register, or to a multiple of it under autocast (fewer sizes).

    A GPU's attention would copy a bias whose rows begin elsewhere than at multiples.
    """
    in_multiples = device != "cpu" or torch.is_autocast_enabled(device)
    return -number % SIMD_FLOATS if in_multiples else max(0, SIMD_FLOATS - number)


class ScratchBackend(nn.Module):
    """Encoder and decoder of our own; see `TransformerBackend` for the contract."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of `src` (B, S, D) under `src_mask` (B, S)."""
        return self.encoder(src, _src_bias(src_mask, src.dtype))

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D) under `src_mask` (B, S)."""
        tgt_bias = as_bias(causal_mask(tgt.shape[1], device=tgt.device), tgt.dtype)  # (T, T)
        return self.decoder(tgt, memory, tgt_bias, _src_bias(src_mask, tgt.dtype))

    def start(self, memory: Tensor, src_mask: Tensor) -> CachedState:
        """State with the memory's keys and values projected."""
        layers = cast("list[DecoderLayer]", list(self.decoder.layers))
        return init_cache(layers, memory, _src_bias(src_mask, torch.float32))

    def step(self, tgt: Tensor, state: CachedState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, embedded as `tgt` (B, N, D)."""
        B, N, D = tgt.shape
        state.advance(N)
        x = tgt.view(B * N, D)
        for layer in state.layers:
            x = layer.step(x, state)
        return self.decoder.norm(x).view(B, N, D)


def _src_bias(src_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Bias (B, 1, 1, S) of `src_mask` (B, S), shared by all heads and queries."""
    return as_bias(src_mask[:, None, None, :], dtype)
