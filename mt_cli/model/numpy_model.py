"""The model in NumPy: translates single sentences on a CPU, without PyTorch.

PyTorch takes a second to import, and adds a microsecond or two to each operation. For a single line
in a shell script, an editor or a server, this is most of the waiting time. So the layers of
`transformer` are repeated here for one sentence: without batches, beams, masks and dropout. Tests
check that both give the same numbers.

A sentence is a matrix with a row for each position. Letters: S source length, T target length, D
d_model, H heads, K head size, V target vocabulary.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import ModelConfig
from mt_cli.text import BOS_ID, EOS_ID

Array = NDArray[np.float32]
Function = Callable[[Array], Array]
FloatArray = NDArray[np.floating[Any]]
Weights = Mapping[str, FloatArray]
"""Parameters by name, tied ones once, in 16 or 32 bits."""
Shape = tuple[int, ...]
LARGEST_PRODUCT = 1 << 18
"""Multiplications per matrix product. NumPy would use all cores for larger ones, and wait for cores
that other programs use.
"""
FIRST_ROOM = 16
"""Initial capacity of a cache, in positions."""
NORM_EPS = np.float32(1e-5)
"""Epsilon of nn.LayerNorm."""

# Parameters


def parameter_shapes(
    config: ModelConfig, *, src_vocab_size: int, tgt_vocab_size: int
) -> dict[str, Shape]:
    """The shape of each parameter, by name, on every backend; tied ones have the first name."""
    D = config.d_model
    F = config.d_ff
    norm: dict[str, Shape] = {"weight": (D,), "bias": (D,)}
    attention = {"in_proj_weight": (3 * D, D), "in_proj_bias": (3 * D,)}
    attention |= _under("out_proj", {"weight": (D, D), "bias": (D,)})
    layer = _under("self_attn", attention)
    layer |= _under("linear1", {"weight": (F, D), "bias": (F,)})
    layer |= _under("linear2", {"weight": (D, F), "bias": (D,)})
    layer |= _under("norm1", norm) | _under("norm2", norm)
    shapes: dict[str, Shape] = {"src_embedding.weight": (src_vocab_size, D)}
    if config.tie != "all":
        shapes["tgt_embedding.weight"] = (tgt_vocab_size, D)
    if config.positions == "learned":
        shapes |= dict.fromkeys(
            ("src_positions.weight", "tgt_positions.weight"), (config.max_len, D)
        )
    for i in range(config.encoder_layers):
        shapes |= _under(f"backend.encoder.layers.{i}", layer)
    layer |= _under("multihead_attn", attention) | _under("norm3", norm)
    for i in range(config.decoder_layers):
        shapes |= _under(f"backend.decoder.layers.{i}", layer)
    if config.final_norm:
        shapes |= _under("backend.encoder.norm", norm) | _under("backend.decoder.norm", norm)
    if config.tie == "none":
        shapes["output.weight"] = (tgt_vocab_size, D)
    if config.output_bias:
        shapes["output.bias"] = (tgt_vocab_size,)
    return shapes


def _under(name: str, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    return {f"{name}.{each}": shape for each, shape in shapes.items()}


def num_parameters(shapes: Mapping[str, Shape]) -> int:
    """The number of parameters with these shapes."""
    return sum(map(math.prod, shapes.values()))


# The model


class NumpyModel:
    """A trained model, for one sentence at a time."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        """`weights` must have the names and shapes of `parameter_shapes`."""
        D = config.d_model
        self._scale = np.float32(math.sqrt(D) if config.scale_embeddings else 1.0)
        self._src_embedding = _fp32(weights["src_embedding.weight"])
        self._tgt_embedding = self._src_embedding
        if config.tie != "all":
            self._tgt_embedding = _fp32(weights["tgt_embedding.weight"])
        if config.positions == "learned":
            self._src_positions = _fp32(weights["src_positions.weight"])
            self._tgt_positions = _fp32(weights["tgt_positions.weight"])
        else:
            self._src_positions = self._tgt_positions = sinusoids(config.max_len, D)
        self._encoder = []
        for i in range(config.encoder_layers):
            self._encoder.append(EncoderLayer(config, weights, f"backend.encoder.layers.{i}"))
        self._decoder = []
        for i in range(config.decoder_layers):
            self._decoder.append(DecoderLayer(config, weights, f"backend.decoder.layers.{i}"))
        self._encoder_norm: Function = _unchanged
        self._decoder_norm: Function = _unchanged
        if config.final_norm:
            self._encoder_norm = _layer_norm(weights, "backend.encoder.norm")
            self._decoder_norm = _layer_norm(weights, "backend.decoder.norm")
        output = weights.get("output.weight", self._tgt_embedding)
        self._output = _linear(output, weights.get("output.bias"))

    def greedy_search(
        self,
        src_ids: Sequence[int],
        *,
        limit: int,
        forbidden_ids: Sequence[int],
        prefix: Sequence[int] = (),
    ) -> list[int]:
        """Append the likeliest token to `prefix` until `</s>` or `limit` tokens.

        For `src_ids` (S,), the result is that of `decoding.search.greedy_search` for a batch.
        """
        forbidden = list(forbidden_ids)
        caches = self.start(src_ids)
        found: list[int] = []
        token_id = BOS_ID
        for next_id in prefix:
            self.step(token_id, caches)
            token_id = next_id
            found.append(next_id)
        while len(found) < limit:
            logits = self.step(token_id, caches)
            logits[forbidden] = -math.inf
            token_id = int(logits.argmax())
            if token_id == EOS_ID:
                break
            found.append(token_id)
        return found

    def token_log_probs(self, src_ids: Sequence[int], tgt_ids: Sequence[int]) -> list[float]:
        """The log-probability of each of `tgt_ids`, and of `</s>` after them."""
        caches = self.start(src_ids)
        found = []
        for token_id, next_id in zip([BOS_ID, *tgt_ids], [*tgt_ids, EOS_ID], strict=True):
            logits = self.step(token_id, caches)
            logits -= logits.max()
            found.append(float(logits[next_id] - np.log(np.exp(logits).sum())))
        return found

    def cross_attention(self, src_ids: Sequence[int], tgt_ids: Sequence[int]) -> Array:
        """The cross-attention (T, S) of `tgt_ids`: mean over heads, in the last layer but one."""
        caches = self.start(src_ids)
        for token_id in [BOS_ID, *tgt_ids][: len(tgt_ids)]:
            self.step(token_id, caches)
        rows = [weights.mean(0) for weights in caches[-2:][0].cross_attention]
        return np.concatenate(rows or [np.empty((0, len(src_ids)), np.float32)])

    def start(self, src_ids: Sequence[int]) -> list["LayerCache"]:
        """Encode `src_ids` (S,), with `</s>`, for a search."""
        x = self._src_embedding[list(src_ids)] * self._scale
        x += self._src_positions[: len(src_ids)]
        for layer in self._encoder:
            x = layer.encode(x)
        memory = self._encoder_norm(x)
        return [layer.start(memory) for layer in self._decoder]

    def step(self, token_id: int, caches: Sequence["LayerCache"]) -> Array:
        """Logits (V,) of the token after `token_id`, whose position follows those in `caches`."""
        x = self._tgt_embedding[[token_id]] * self._scale  # (1, D)
        x += self._tgt_positions[caches[0].length]
        for layer, cache in zip(self._decoder, caches, strict=True):
            x = layer.step(x, cache)
        return self._output(self._decoder_norm(x))[0]


def sinusoids(max_len: int, d_model: int) -> Array:
    """Sinusoids of falling frequency, (max_len, D) (Vaswani et al. 2017, 3.5).

    Even column i is sin(position / 10000^(i/D)), the next one the cosine of the same angle; i is
    the paper's 2i.
    """
    column = np.arange(0, d_model, 2)  # (D/2,)
    frequency = np.exp(column * (-math.log(10000.0) / d_model))
    angles = np.arange(max_len)[:, np.newaxis] * frequency  # (max_len, D/2)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)  # (max_len, D/2, 2)
    return waves.reshape(max_len, d_model).astype(np.float32)


# Attention


class Attention:
    """Multi-head attention."""

    def __init__(self, weights: Weights, name: str, *, num_heads: int) -> None:
        """Take the weights of the attention `name`."""
        weight = weights[f"{name}.in_proj_weight"]
        bias = weights[f"{name}.in_proj_bias"]
        D = weight.shape[1]
        self._num_heads = num_heads
        self._head_size = D // num_heads
        self._project_query = _linear(weight[:D], bias[:D])
        self._project_memory = _linear(weight[D:], bias[D:])
        self._project_heads = _linear_named(weights, f"{name}.out_proj")

    def queries(self, x: Array) -> Array:
        """The queries (H, T, K) of `x` (T, D)."""
        return self._split_heads(self._project_query(x))[0]

    def keys_and_values(self, x: Array) -> Array:
        """The keys and values (2, H, S, K) of `x` (S, D)."""
        return self._split_heads(self._project_memory(x))

    def output(self, attention: Array, values: Array) -> Array:
        """The output (T, D) for the weights `attention` (H, T, S) and `values` (H, S, K)."""
        heads = np.matmul(attention, values)  # (H, T, K)
        return self._project_heads(heads.transpose(1, 0, 2).reshape(heads.shape[1], -1))

    def _split_heads(self, x: Array) -> Array:
        y = x.reshape(len(x), -1, self._num_heads, self._head_size)
        return y.transpose(1, 2, 0, 3)


def attention_weights(q: Array, k: Array) -> Array:
    """softmax(q kᵀ / √K), (H, T, S), for queries `q` (H, T, K) and keys `k` (H, S, K)."""
    scores = np.matmul(q, k.transpose(0, 2, 1))
    scores *= np.float32(1 / math.sqrt(q.shape[-1]))
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


class LayerCache:
    """The cached keys and values of a decoder layer."""

    def __init__(self, memory: Array) -> None:
        self.memory = memory
        """Keys and values of the source, (2, H, S, K)."""
        H, _, K = memory.shape[1:]
        self.length = 0
        """Number of target positions so far."""
        self._past = np.empty((2, H, FIRST_ROOM, K), np.float32)
        """Keys and values of the target so far, with room for more."""
        self.cross_attention: list[Array] = []
        """Cross-attention weights of each target position, (H, 1, S)."""

    def append(self, kv: Array) -> Array:
        """Append `kv` (2, H, 1, K); return those of the whole target so far, (2, H, T, K)."""
        if self.length == self._past.shape[2]:
            self._past = np.concatenate([self._past, np.empty_like(self._past)], axis=2)
        self._past[:, :, self.length] = kv[:, :, 0]
        self.length += 1
        return self._past[:, :, : self.length]


# Layers


class Layer:
    """The common parts of encoder and decoder layers."""

    def __init__(self, config: ModelConfig, weights: Weights, name: str) -> None:
        """Take the weights of the layer `name`."""
        self._is_pre_norm = config.norm == "pre"
        self._self_attn = Attention(weights, f"{name}.self_attn", num_heads=config.num_heads)
        self._linear1 = _linear_named(weights, f"{name}.linear1")
        self._linear2 = _linear_named(weights, f"{name}.linear2")
        self._activation = ACTIVATIONS[config.activation]
        self._norm1 = _layer_norm(weights, f"{name}.norm1")
        self._norm2 = _layer_norm(weights, f"{name}.norm2")

    def _residual(self, x: Array, norm: Function, sublayer: Function) -> Array:
        return x + sublayer(norm(x)) if self._is_pre_norm else norm(x + sublayer(x))

    def _feed_forward(self, x: Array) -> Array:
        return self._linear2(self._activation(self._linear1(x)))


class EncoderLayer(Layer):
    """Self-attention over the source, then a feed-forward network."""

    def encode(self, x: Array) -> Array:
        """Map `x` (S, D) to (S, D)."""
        x = self._residual(x, self._norm1, self._attend)
        return self._residual(x, self._norm2, self._feed_forward)

    def _attend(self, x: Array) -> Array:
        k, v = self._self_attn.keys_and_values(x)
        return self._self_attn.output(attention_weights(self._self_attn.queries(x), k), v)


class DecoderLayer(Layer):
    """Self-attention, attention to the memory, then a feed-forward network: a row at a time."""

    def __init__(self, config: ModelConfig, weights: Weights, name: str) -> None:
        """Take the weights of the layer `name`."""
        super().__init__(config, weights, name)
        self._cross_attn = Attention(weights, f"{name}.multihead_attn", num_heads=config.num_heads)
        self._norm3 = _layer_norm(weights, f"{name}.norm3")

    def start(self, memory: Array) -> LayerCache:
        """The cache before the first step over `memory` (S, D)."""
        return LayerCache(self._cross_attn.keys_and_values(memory))

    def step(self, x: Array, cache: LayerCache) -> Array:
        """Map `x` (1, D), at the position after those in `cache`, to (1, D)."""

        def attend_to_past(y: Array) -> Array:
            k, v = cache.append(self._self_attn.keys_and_values(y))
            return self._self_attn.output(attention_weights(self._self_attn.queries(y), k), v)

        def attend_to_memory(y: Array) -> Array:
            k, v = cache.memory
            cache.cross_attention.append(attention_weights(self._cross_attn.queries(y), k))
            return self._cross_attn.output(cache.cross_attention[-1], v)

        x = self._residual(x, self._norm1, attend_to_past)
        x = self._residual(x, self._norm2, attend_to_memory)
        return self._residual(x, self._norm3, self._feed_forward)


# Row-wise functions


def _fp32(array: FloatArray) -> Array:
    return array.astype(np.float32, copy=False)


def _linear_named(weights: Weights, name: str) -> Function:
    return _linear(weights[f"{name}.weight"], weights[f"{name}.bias"])


def _linear(weight: FloatArray, bias: FloatArray | None) -> Function:
    matrix = weight.T.astype(np.float32, order="C")  # products read it row by row
    if bias is not None:
        bias = _fp32(bias)

    def apply(x: Array) -> Array:
        width = max(1, LARGEST_PRODUCT // x.size)
        if width >= matrix.shape[1]:
            y = np.matmul(x, matrix)
        else:
            parts = []
            for begin in range(0, matrix.shape[1], width):
                parts.append(np.matmul(x, matrix[:, begin : begin + width]))
            y = np.concatenate(parts, axis=1)
        if bias is not None:
            y += bias
        return y

    return apply


def _layer_norm(weights: Weights, name: str) -> Function:
    gain = _fp32(weights[f"{name}.weight"])
    bias = _fp32(weights[f"{name}.bias"])
    num = np.float32(len(gain))

    def apply(x: Array) -> Array:
        y = x - x.sum(-1, keepdims=True) / num
        variance = (y * y).sum(-1, keepdims=True) / num
        y /= np.sqrt(variance + NORM_EPS)
        y *= gain
        y += bias
        return y

    return apply


def _unchanged(x: Array) -> Array:
    return x


def _relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0))


def _gelu(x: Array) -> Array:
    """X Φ(x) (Hendrycks and Gimpel 2016); NumPy has no error function."""
    erf = np.array([math.erf(each / math.sqrt(2)) for each in x.flat], np.float32)
    return x * (erf.reshape(x.shape) + np.float32(1)) * np.float32(0.5)


ACTIVATIONS: dict[str, Function] = {"relu": _relu, "gelu": _gelu}
