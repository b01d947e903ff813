"""The `scratch` backend: our own layers, and a cached decoder that computes one position per step.

It caches keys and values, and makes few PyTorch calls per step.

Every PyTorch call costs a microsecond or more, and a step for one sentence has little to compute.
So the computation of `transformer` is repeated here in plain functions, without modules, dropout
and gradients. Letters: B batch, N beams, R = B·N rows, S source length, D d_model, H heads, K head
size.

The cache has one slot per position of each beam. `used` slots have a key and a value, `shown` slots
take part in products (the used ones and padding), and `room` slots are allocated.
"""

import math
from collections.abc import Callable
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


class CachedState:
    """Cached keys and values of all layers, so that a step computes only one position."""

    def __init__(self, layers: list[DecoderLayer], memory: Tensor, src_mask: Tensor) -> None:
        """State of the decoder `layers` over `memory` (B, S, D) under `src_mask` (B, S)."""
        self.layers = [CachedLayer(layer, memory) for layer in layers]
        self.num_heads = layers[0].self_attn.num_heads
        self.length = 0
        self.used = 0
        """Used slots in each layer: every step fills one per beam."""
        dtype = self.layers[0].dtype
        self.src_bias = pad_bias(as_bias(src_mask[:, None, :], dtype))
        """Bias (B, 1, S) that masks source padding and the slots that `pad_slots` adds."""
        self.past_bias = pad_bias(memory.new_empty(1, 1, 0, dtype=dtype))
        """Bias (B, N, shown) that masks every slot outside a beam's own past.

        While each sentence has one beam, all share a row, (1, 1, shown). In both biases, a size of
        1 broadcasts to all sentences.
        """
        self.src_bias_per_head = self._per_head(self.src_bias)
        """In the form for attention."""
        self.past_bias_per_head = self.past_bias
        """In the form for attention; set by `advance`."""

    def select(self, sentences: Tensor) -> None:
        """Keep only `sentences` (M,), in that order; copies only those that move."""
        in_place = torch.arange(len(sentences), device=sentences.device)
        targets = (sentences != in_place).nonzero().squeeze(1)
        for layer in self.layers:
            layer.keep(sentences[targets], targets, num_sentences=len(sentences), used=self.used)
        self.src_bias = self.src_bias[sentences]
        self.src_bias_per_head = self._per_head(self.src_bias)
        if len(self.past_bias) > 1:
            self.past_bias = self.past_bias[sentences]

    def reorder(self, parents: Tensor) -> None:
        """Let beam n of sentence b continue its current beam `parents[b, n]`; (B, N).

        Keys and values are not copied: beams with a common past share slots, and `past_bias`
        records which beams may attend to them.
        """
        B, N = parents.shape
        if N == self.past_bias.shape[1] == 1:
            return
        self.past_bias = self.past_bias.expand(B, -1, -1).gather(
            1, parents.unsqueeze(-1).expand(-1, -1, self.past_bias.shape[-1])
        )

    def advance(self, num_beams: int) -> None:
        """Add a slot for each of `num_beams` beams, visible only to that beam."""
        first = self.used
        self.used += num_beams
        self.length += 1
        if self.used > self.past_bias.shape[-1]:
            self.past_bias = pad_bias(self.past_bias, at_least=self.used)
        self.past_bias[:, :, first : self.used].diagonal(dim1=1, dim2=2).fill_(0)
        self.past_bias_per_head = self._per_head(self.past_bias)

    def _per_head(self, bias: Tensor) -> Tensor:
        """`bias` (B, N, S) as (B·H, N, S); a shared one is not expanded."""
        if len(bias) == 1:
            return bias
        return bias.unsqueeze(1).expand(-1, self.num_heads, -1, -1).flatten(0, 1)


class CachedLayer:
    """A decoder layer with the keys and values of one batch."""

    def __init__(self, layer: DecoderLayer, memory: Tensor) -> None:
        """Prepare `layer` for decoding over `memory` (B, S, D)."""
        D = memory.shape[-1]
        self_attn = layer.self_attn
        cross_attn = layer.multihead_attn
        # Keys and values of the source, (2, B, H, S, K).
        self._memory = pad_slots(torch.stack(cross_attn.project_memory(memory)))
        # Those of the target so far, (2, B, H, room, K): a slot per position and beam, in order.
        self._past = self._memory[:, :, :, :0]
        self._refresh_views(0)
        self.dtype = self._memory.dtype
        self._num_heads = self_attn.num_heads
        self._project_all = _linear(self_attn.in_proj_weight, self_attn.in_proj_bias)
        self._project_query = _linear(cross_attn.in_proj_weight[:D], cross_attn.in_proj_bias[:D])
        self._linear1 = _linear(layer.linear1.weight, layer.linear1.bias)
        self._activation = layer.activation
        # The last linear layer of each sublayer, added to the residual.
        self._add_past = _adding(self_attn.out_proj)
        self._add_memory = _adding(cross_attn.out_proj)
        self._add_feed_forward = _adding(layer.linear2)
        self._norm1 = norm_function(layer.norm1)
        self._norm2 = norm_function(layer.norm2)
        self._norm3 = norm_function(layer.norm3)
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
        """The input of a sublayer: `x` (R, D), normalized in a pre-norm model."""
        return norm(x) if self._is_pre_norm else x

    def _after(self, norm: TensorFunction, x: Tensor) -> Tensor:
        return x if self._is_pre_norm else norm(x)

    def keep(self, sources: Tensor, targets: Tensor, *, num_sentences: int, used: int) -> None:
        """Copy sentences `sources` (P,) to `targets` (P,), then keep the first `num_sentences`."""
        self._past[:, targets, :, :used] = self._past[:, sources, :, :used]
        self._memory[:, targets] = self._memory[:, sources]
        self._past = self._past[:, :num_sentences]
        self._memory = self._memory[:, :num_sentences]
        self._refresh_views(self._shown)

    def _attend_to_past(self, x: Tensor, state: CachedState) -> Tensor:
        R = len(x)
        B = self._past.shape[1]
        N = R // B
        first = state.used - N
        shown = state.past_bias.shape[-1]
        if shown > self._shown:
            self._make_room(shown, filled=first)
        packed = self._project_all(x).view(B, N, 3, self._num_heads, -1)
        new = packed.narrow(2, 1, 2).permute(2, 0, 3, 1, 4)  # (2, B, H, N, K)
        self._past.narrow(3, first, N).copy_(new)
        q = packed.select(2, 0)
        return _attention(q, self._past_k, self._past_v, state.past_bias_per_head)

    def _attend_to_memory(self, x: Tensor, state: CachedState) -> Tensor:
        # All beams of a sentence share its memory, as N queries of one attention.
        q = self._project_query(x).view(
            self._past.shape[1], -1, self._num_heads, self._past.shape[-1]
        )
        return _attention(q, self._memory_k, self._memory_v, state.src_bias_per_head)

    def _feed_forward_hidden(self, x: Tensor) -> Tensor:
        return self._activation(self._linear1(x))  # (R, F)

    def _make_room(self, shown: int, *, filled: int) -> None:
        """Allocate at least `shown` slots; the first `filled` have a key and a value."""
        _, B, H, room, K = self._past.shape
        if shown > room:
            # Doubling the room copies each entry about once. Empty slots are masked, but must not
            # be NaN, which would still spread.
            past = self._past.new_zeros(2, B, H, max(shown, 2 * room), K)
            past[:, :, :, :filled] = self._past[:, :, :, :filled]
            self._past = past
        self._refresh_views(shown)

    def _refresh_views(self, shown: int) -> None:
        """Make views of the first `shown` slots for the products, with heads merged into B."""
        self._shown = shown
        past = self._past.flatten(1, 2)[:, :, :shown]
        memory = self._memory.flatten(1, 2)
        self._past_k = past[0].mT  # (B·H, K, shown)
        self._past_v = past[1]
        self._memory_k = memory[0].mT
        self._memory_v = memory[1]


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor) -> Tensor:
    """`q` (B, N, H, K) attends to `k` (B·H, K, S) and `v` (B·H, S, K): (R, D).

    `attn_bias` (B·H, N, S) is a mask converted by `as_bias`, which broadcasts.
    """
    B, N, H, K = q.shape
    q = q.transpose(1, 2)  # (B, H, N, K)
    if q.is_cuda:  # a single fused kernel
        k = k.mT.view(B, H, -1, K)
        v = v.view(B, H, -1, K)
        attn_bias = attn_bias.expand(B * H, -1, -1).view(B, H, *attn_bias.shape[1:])
        heads = F.scaled_dot_product_attention(q, k, v, attn_bias)
    else:
        q = q.reshape(B * H, N, K)
        weights = torch.baddbmm(attn_bias, q, k, alpha=1 / math.sqrt(K)).softmax(-1)  # (B·H, N, S)
        heads = torch.bmm(weights, v).view(B, H, N, K)
    return heads.transpose(1, 2).reshape(B * N, H * K)


def _linear(weight: Tensor, bias: Tensor) -> TensorFunction:
    device = weight.device.type
    if torch.is_autocast_enabled(device):  # autocast would convert non-parameters at every step
        dtype = torch.get_autocast_dtype(device)
        weight = weight.to(dtype)
        bias = bias.to(dtype)
    transposed = weight.t()
    return lambda x: torch.addmm(bias, x, transposed)


def _adding(linear: nn.Linear) -> Residual:
    """A function that adds `linear` of its second argument to the first, in place."""
    if torch.is_autocast_enabled(linear.weight.device.type):  # autocast cannot work in place
        function = _linear(linear.weight, linear.bias)
        return lambda x, y: x + function(y)
    transposed = linear.weight.t()
    bias = linear.bias
    return lambda x, y: x.addmm_(y, transposed).add_(bias)


def norm_function(norm: nn.Module) -> TensorFunction:
    """`norm` without the overhead of a module, if it is PyTorch's."""
    if type(norm) is not nn.LayerNorm:  # from another backend
        return norm
    shape = norm.normalized_shape
    weight = norm.weight
    bias = norm.bias
    eps = norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


def pad_slots(kv: Tensor) -> Tensor:
    """Append zeros to keys or values `kv` (…, S, K); `pad_bias` masks them.

    Rows of scores then fill vector registers. Otherwise a CPU's softmax and products take several
    times as long, and a GPU's attention copies its bias.
    """
    return F.pad(kv, (0, 0, 0, -kv.shape[-2] % SIMD_FLOATS))


def pad_bias(bias: Tensor, *, at_least: int = 1) -> Tensor:
    """Extend `bias` (…, S) to the slots of `pad_slots`, or `at_least` this many, and mask them."""
    S = bias.shape[-1]
    shown = math.ceil(max(S, at_least) / SIMD_FLOATS) * SIMD_FLOATS
    return F.pad(bias, (0, shown - S), value=-math.inf)


class ScratchBackend(nn.Module):
    """Our own encoder and decoder; see `TransformerBackend` for the contract."""

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
        """The initial state, with projected keys and values of the memory."""
        layers = cast("list[DecoderLayer]", list(self.decoder.layers))
        return CachedState(layers, memory, src_mask)

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
