"""`TranslationModel`: ids in, logits out, around a swappable backend.

Owns embeddings, positions, tying and the output layer; knows no text, vocabulary or config object.
Letters: B batch, N beams, S source length, T target length, D d_model, V target vocabulary.
"""

import math
from typing import Literal, cast

import torch
from torch import Tensor, nn

from mt_cli.model.backend import DecoderState, TransformerBackend
from mt_cli.model.dropout import Dropout
from mt_cli.model.initialisation import initialise
from mt_cli.model.layers import TransformerOptions
from mt_cli.model.masks import padding_mask
from mt_cli.model.positions import Positions
from mt_cli.model.pytorch import TorchBackend
from mt_cli.model.scratch import ScratchBackend

BACKENDS: dict[str, type[TorchBackend] | type[ScratchBackend]] = {
    "torch": TorchBackend,
    "scratch": ScratchBackend,
}


class TranslationModel(nn.Module):
    """The Transformer of Vaswani et al. (2017), 3, with the variations in common use."""

    backend: TransformerBackend

    def __init__(
        self,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
        pad_id: int,
        backend: Literal["torch", "scratch"],
        d_model: int,
        num_heads: int,
        encoder_layers: int,
        decoder_layers: int,
        d_ff: int,
        norm: Literal["pre", "post"],
        final_norm: bool,
        positions: Literal["sinusoidal", "learned"],
        max_len: int,
        scale_embeddings: bool,
        tie: Literal["none", "decoder", "all"],
        activation: Literal["relu", "gelu"],
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
        output_bias: bool,
        init: Literal["xavier", "normal"],
        generator: torch.Generator,
    ) -> None:
        """Draw fresh weights from `generator`; `ModelConfig` explains the options."""
        super().__init__()
        if tie == "all" and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"tie 'all' needs one vocabulary, found sizes {src_vocab_size}, {tgt_vocab_size}"
            )
        self.pad_id = pad_id
        self.max_len = max_len
        self.longest_sentence = max_len - 1
        """In ids; leaves room for `<s>` or `</s>`."""
        self.scale = math.sqrt(d_model) if scale_embeddings else 1.0
        self.src_embedding = nn.Embedding(src_vocab_size, d_model)
        self.tgt_embedding = self.src_embedding if tie == "all" else nn.Embedding(tgt_vocab_size, d_model)
        self.src_positions = Positions(max_len, d_model, learned=positions == "learned")
        self.tgt_positions = Positions(max_len, d_model, learned=positions == "learned")
        self.dropout = Dropout(dropout)
        options = TransformerOptions(
            d_model=d_model,
            num_heads=num_heads,
            encoder_layers=encoder_layers,
            decoder_layers=decoder_layers,
            d_ff=d_ff,
            is_pre_norm=norm == "pre",
            final_norm=final_norm,
            activation=activation,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation_dropout=activation_dropout,
        )
        # The cast is needed because each backend accepts only its own type of state.
        self.backend = cast("TransformerBackend", BACKENDS[backend](options))
        self.output = nn.Linear(d_model, tgt_vocab_size, bias=output_bias)
        if tie != "none":
            self.output.weight = self.tgt_embedding.weight
        initialise(self, kind=init, d_model=d_model, generator=generator)

    def forward(self, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (B, T, V) of the token after each position of `tgt_in` (B, T), given `src_ids` (B, S)."""
        logits: Tensor = self.output(self.hidden(src_ids, tgt_in))
        return logits

    def hidden(self, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
        """Decoder output (B, T, D) before the output layer, teacher-forced on `tgt_in` (B, T)."""
        memory, src_mask = self.encode(src_ids)
        tgt = self._embed(self.tgt_embedding, self.tgt_positions, tgt_in)
        return self.backend.decode(tgt, memory, src_mask)

    def encode(self, src_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Memory (B, S, D) of `src_ids` (B, S), and its mask (B, S), True = may be attended."""
        src_mask = padding_mask(src_ids, pad_id=self.pad_id)
        src = self._embed(self.src_embedding, self.src_positions, src_ids)
        return self.backend.encode(src, src_mask), src_mask

    def start(self, src_ids: Tensor) -> DecoderState:
        """Encode `src_ids` (B, S) for a search."""
        return self.backend.start(*self.encode(src_ids))

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Logits (B, N, V) of the token after `ids` (B, N), the latest of each beam; advances `state`."""
        self._check_length(state.length + 1)
        tgt = self.tgt_embedding(ids) * self.scale + self.tgt_positions.weight[state.length]  # (B, N, D)
        logits: Tensor = self.output(self.backend.step(tgt, state))
        return logits

    def _embed(self, embedding: nn.Embedding, positions: Positions, ids: Tensor) -> Tensor:
        self._check_length(ids.shape[1])
        out: Tensor = self.dropout(positions(embedding(ids) * self.scale))
        return out

    def _check_length(self, length: int) -> None:
        if length > self.max_len:
            raise ValueError(f"{length} tokens, but the model takes {self.max_len}; shorten the input")
