"""Greedy search over one sentence on a CPU: the decoder's step in NumPy, for a single position.

Such a step is some fifty small operations. Around each of them PyTorch spends a microsecond or two
and NumPy a third of that, which makes a fifth of a sentence's time. So `DecoderLayer` is repeated
here for vectors, without batch, beams, masks and dropout. Norms, activations and softmax are
PyTorch's, on the same memory.

Letters: S source length, T target length so far, D d_model, H heads, K head size, V target
vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mt_cli.model.model import TranslationModel
from mt_cli.model.scratch import ScratchBackend, norm_function
from mt_cli.model.transformer import DecoderLayer
from mt_cli.text import BOS_ID, EOS_ID

Array = NDArray[np.float32]
Function = Callable[[Array], Array]
LARGEST_BLOCK = 1 << 18
"""Numbers of a matrix that are multiplied at a time. NumPy multiplies twice as many on all cores,
and waits for those that other programs have.
"""
FIRST_ROOM = 16
"""Positions that the cache has room for at first."""


class OneSentenceModel:
    """A model with our own backend, for greedy search over one sentence at a time."""

    def __init__(self, model: TranslationModel, decoder: nn.Module) -> None:
        """The weights of `model`, whose decoder is `decoder`, may change, but only in place."""
        self._model = model
        self._layers = [LayerArrays(layer) for layer in cast("list[DecoderLayer]", decoder.layers)]
        self._norm = _on_arrays(norm_function(cast("nn.Module", decoder.norm)))
        self._embedding = model.tgt_embedding.weight.detach().numpy()
        self._positions = model.tgt_positions.weight.detach().numpy()
        self._output = _linear(model.output.weight, model.output.bias)

    @classmethod
    def of(cls, model: nn.Module) -> "OneSentenceModel | None":
        """`model` for one sentence; None if its layers are not our own, or not on a CPU."""
        backend: object = getattr(model, "backend", None)
        if not isinstance(model, TranslationModel) or type(backend) is not ScratchBackend:
            return None
        return cls(model, backend.decoder) if model.output.weight.is_cpu else None

    def greedy_search(
        self,
        src_ids: Tensor,
        *,
        limit: int,
        forbidden_ids: Sequence[int],
        prefix: Sequence[int] = (),
    ) -> list[int]:
        """After `prefix` the likeliest token again and again, until `</s>` or `limit` tokens.

        For `src_ids` (1, S) it finds what `decoding.greedy_search` finds for a batch.
        """
        forbidden = list(forbidden_ids)
        caches = self.start(src_ids)
        found: list[int] = []
        token_id = BOS_ID
        for next_id in prefix:
            self.step(token_id, caches, position=len(found))
            token_id = next_id
            found.append(next_id)
        while len(found) < limit:
            logits = self.step(token_id, caches, position=len(found))
            logits[forbidden] = -math.inf
            token_id = int(logits.argmax())
            if token_id == EOS_ID:
                break
            found.append(token_id)
        return found

    def start(self, src_ids: Tensor) -> list["LayerCache"]:
        """Encode `src_ids` (1, S) for a search."""
        memory, _ = self._model.encode(src_ids)
        return [layer.start(memory) for layer in self._layers]

    def step(self, token_id: int, caches: list["LayerCache"], *, position: int) -> Array:
        """Logits (V,) of the token after `token_id`, which is at `position`."""
        x = self._embedding[token_id] * self._model.scale
        x += self._positions[position]
        for layer, cache in zip(self._layers, caches, strict=True):
            x = layer.step(x, cache, position)
        return self._output(self._norm(x))


class LayerCache:
    """Keys and values of one layer."""

    def __init__(self, memory: Array) -> None:
        self.memory = memory
        """Those of the source, (2, H, S, K)."""
        _, H, _, K = memory.shape
        self.past = np.empty((2, H, FIRST_ROOM, K), np.float32)
        """Those of the target so far, and room for more."""

    def append(self, kv: Array, position: int) -> Array:
        """All keys and values (2, H, T, K), with those of `position`, (2, H, K), as the last."""
        if position == self.past.shape[2]:
            self.past = np.concatenate([self.past, np.empty_like(self.past)], axis=2)
        self.past[:, :, position] = kv
        return self.past[:, :, : position + 1]


class LayerArrays:
    """A decoder layer for one position."""

    def __init__(self, layer: DecoderLayer) -> None:
        self_attn = layer.self_attn
        cross_attn = layer.multihead_attn
        D = cross_attn.out_proj.in_features
        self._is_pre_norm = layer.is_pre_norm
        self._num_heads = self_attn.num_heads
        self._project_all = _linear(self_attn.in_proj_weight, self_attn.in_proj_bias)
        self._project_past = _linear(self_attn.out_proj.weight, self_attn.out_proj.bias)
        self._project_query = _linear(cross_attn.in_proj_weight[:D], cross_attn.in_proj_bias[:D])
        self._keys_and_values = cross_attn.project_memory
        self._project_memory = _linear(cross_attn.out_proj.weight, cross_attn.out_proj.bias)
        self._linear1 = _linear(layer.linear1.weight, layer.linear1.bias)
        self._linear2 = _linear(layer.linear2.weight, layer.linear2.bias)
        self._activation = _on_arrays(layer.activation)
        self._norm1 = _on_arrays(norm_function(layer.norm1))
        self._norm2 = _on_arrays(norm_function(layer.norm2))
        self._norm3 = _on_arrays(norm_function(layer.norm3))

    def start(self, memory: Tensor) -> LayerCache:
        """The cache before the first step over `memory` (1, S, D)."""
        return LayerCache(torch.cat(self._keys_and_values(memory)).numpy())

    def step(self, x: Array, cache: LayerCache, position: int) -> Array:
        """Output (D,) for `x` (D,) at `position`."""

        def attend_to_past(y: Array) -> Array:
            packed = self._project_all(y).reshape(3, self._num_heads, -1)  # (3, H, K)
            k, v = cache.append(packed[1:], position)
            return self._project_past(_attention(packed[0], k, v))

        def attend_to_memory(y: Array) -> Array:
            q = self._project_query(y).reshape(self._num_heads, -1)
            return self._project_memory(_attention(q, *cache.memory))

        x = self._residual(x, self._norm1, attend_to_past)
        x = self._residual(x, self._norm2, attend_to_memory)
        return self._residual(x, self._norm3, self._feed_forward)

    def _feed_forward(self, x: Array) -> Array:
        return self._linear2(self._activation(self._linear1(x)))

    def _residual(self, x: Array, norm: Function, sublayer: Function) -> Array:
        return x + sublayer(norm(x)) if self._is_pre_norm else norm(x + sublayer(x))


def _attention(q: Array, k: Array, v: Array) -> Array:
    """`q` (H, K) attends to `k` and `v`, each (H, T, K): (D,)."""
    scores = np.matmul(k, q[:, :, None])  # (H, T, 1)
    scores *= 1 / math.sqrt(q.shape[1])
    weights = torch.from_numpy(scores).softmax(1).numpy()
    return np.matmul(weights.transpose(0, 2, 1), v).reshape(-1)


def _linear(weight: Tensor, bias: Tensor | None) -> Function:
    matrix = weight.detach().t().numpy()
    num_in, num_out = matrix.shape
    width = max(1, LARGEST_BLOCK // num_in)
    blocks = [matrix[:, begin : begin + width] for begin in range(0, num_out, width)]
    offset = None if bias is None else bias.detach().numpy()

    def apply(x: Array) -> Array:
        parts = [np.matmul(x, block) for block in blocks]  # np.dot would copy padded rows
        y = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if offset is not None:
            y += offset
        return y

    return apply


def _on_arrays(function: Callable[[Tensor], Tensor]) -> Function:
    return lambda x: function(torch.from_numpy(x)).numpy()
