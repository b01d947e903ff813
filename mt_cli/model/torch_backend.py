"""The `torch` backend: nn.Transformer behind the project's interface.

Masks are inverted only here: in PyTorch, True means "ignore".
Letters: B batch, S source length, T target length, D d_model.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mt_cli.config.schema import ModelConfig
from mt_cli.model.cpu_kernels import Dropout
from mt_cli.model.transformer import causal_mask

TorchLayer = TypeVar("TorchLayer", nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


@dataclass
class PrefixState:
    """A state with the whole prefix, because nn.Transformer has no cache."""

    memory: Tensor
    """(B, S, D)."""
    src_mask: Tensor
    """(B, S), True = may be attended."""
    prefix: Tensor
    """Embedded target so far, (B, N, T, D)."""

    @property
    def length(self) -> int:
        """Number of target positions so far."""
        return self.prefix.shape[2]

    def select(self, sentences: Tensor) -> None:
        """Keep only `sentences` (M,), in that order."""
        self.memory = self.memory[sentences]
        self.src_mask = self.src_mask[sentences]
        self.prefix = self.prefix[sentences]

    def reorder(self, parents: Tensor) -> None:
        """Let beam n of sentence b continue its current beam `parents[b, n]`; (B, N)."""
        sentences = torch.arange(len(parents), device=parents.device).unsqueeze(1)  # (B, 1)
        self.prefix = self.prefix[sentences, parents]


class TorchBackend(nn.Transformer):
    """nn.Transformer; see `TransformerBackend` for the contract.

    Its `step` recomputes the whole prefix: slow but simple, so it is the reference for the cached
    decoder.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(
            d_model=config.d_model,
            nhead=config.num_heads,
            custom_encoder=nn.TransformerEncoder(
                _build_layer(nn.TransformerEncoderLayer, config),
                config.encoder_layers,
                norm=nn.LayerNorm(config.d_model) if config.final_norm else None,
                # Nested tensors truncate padding and change results (pytorch #97111).
                enable_nested_tensor=False,
            ),
            custom_decoder=nn.TransformerDecoder(
                _build_layer(nn.TransformerDecoderLayer, config),
                config.decoder_layers,
                norm=nn.LayerNorm(config.d_model) if config.final_norm else None,
            ),
            batch_first=True,
        )

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of `src` (B, S, D) under `src_mask` (B, S)."""
        with _fast_attention(src):
            memory: Tensor = self.encoder(src, src_key_padding_mask=~src_mask)
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D) under `src_mask` (B, S)."""
        with _fast_attention(tgt):
            out: Tensor = self.decoder(
                tgt,
                memory,
                tgt_mask=~causal_mask(tgt.shape[1], device=tgt.device),
                tgt_is_causal=True,  # otherwise PyTorch checks the mask and waits for the GPU
                memory_key_padding_mask=~src_mask,
            )
        return out

    def start(self, memory: Tensor, src_mask: Tensor) -> PrefixState:
        """State with an empty prefix."""
        return PrefixState(memory, src_mask, memory[:, None, :0])

    def step(self, tgt: Tensor, state: PrefixState) -> Tensor:
        """Output (B, N, D) at the next position of each beam, embedded as `tgt` (B, N, D)."""
        B, N, _ = tgt.shape
        state.prefix = torch.cat([state.prefix, tgt.unsqueeze(2)], dim=2)  # (B, N, T, D)
        memory = state.memory.repeat_interleave(N, dim=0)  # (B·N, S, D)
        src_mask = state.src_mask.repeat_interleave(N, dim=0)
        return self.decode(state.prefix.flatten(0, 1), memory, src_mask)[:, -1].view(B, N, -1)


def _fast_attention(x: Tensor) -> AbstractContextManager[None]:
    """A context in which the attention of `x` is also fast in the backward pass.

    On a CPU in bf16, the backward pass of PyTorch's fused attention took 85 % of an update (PyTorch
    2.13, with AMX); training is seven times as fast without it. Decoding keeps it, because the
    switch applies to all threads.
    """
    is_bf16 = x.dtype == torch.bfloat16 or torch.is_autocast_enabled(x.device.type)
    if x.is_cpu and is_bf16 and torch.is_grad_enabled():
        return sdpa_kernel(SDPBackend.MATH)
    return nullcontext()


def _build_layer(kind: type[TorchLayer], config: ModelConfig) -> TorchLayer:
    layer = kind(
        config.d_model,
        config.num_heads,
        config.d_ff,
        activation=config.activation,
        batch_first=True,
        norm_first=config.norm == "pre",
    )
    # PyTorch's constructor has a single dropout rate; set those of the layer's parts here.
    layer.self_attn.dropout = config.attention_dropout
    layer.dropout = Dropout(config.activation_dropout)
    layer.dropout1 = Dropout(config.dropout)
    layer.dropout2 = Dropout(config.dropout)
    if isinstance(layer, nn.TransformerEncoderLayer) and config.activation == "gelu":
        layer.activation_relu_or_gelu = 0  # otherwise the GPU's fast path approximates GELU by tanh
    if isinstance(layer, nn.TransformerDecoderLayer):
        layer.multihead_attn.dropout = config.attention_dropout
        layer.dropout3 = Dropout(config.dropout)
    return layer
