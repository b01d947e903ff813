"""`TranslationModel`: ids in, logits out, around a swappable backend; and `Ensemble`, several as
one.

Owns embeddings, positions, tying, the output layer and initial weights.
Letters: B batch, N beams, S source length, T target length, D d_model, V target vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, cast

import torch
from torch import Tensor, nn

from mt_cli.model.cpu_kernels import Dropout
from mt_cli.model.transformer import (
    DecoderState,
    Positions,
    ScratchBackend,
    TransformerBackend,
    TransformerOptions,
    padding_mask,
)
from mt_cli.text import PAD_ID


class TranslationModel(nn.Module):
    """The Transformer of Vaswani et al. (2017), 3, with the variations in common use."""

    backend: TransformerBackend

    def __init__(
        self,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
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
        self.max_len = max_len
        self.longest_sentence = max_len - 1
        """In ids; leaves room for `<s>` or `</s>`."""
        self.scale = math.sqrt(d_model) if scale_embeddings else 1.0
        self.src_embedding = _embedding(src_vocab_size, d_model)
        self.tgt_embedding = (
            self.src_embedding if tie == "all" else _embedding(tgt_vocab_size, d_model)
        )
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
        # The casts are needed because each backend accepts only its own type of state.
        if backend == "scratch":
            self.backend = cast("TransformerBackend", ScratchBackend(options))
        else:
            from mt_cli.model.torch_backend import TorchBackend

            self.backend = cast("TransformerBackend", TorchBackend(options))
        self.output = nn.Linear(d_model, tgt_vocab_size, bias=output_bias)
        if tie != "none":
            self.output.weight = self.tgt_embedding.weight
        if not self.output.weight.is_meta:  # which has shapes and no numbers
            initialise(self, kind=init, d_model=d_model, generator=generator)

    def compute_in(self, dtype: torch.dtype) -> "TranslationModel":
        """This model, with layers that compute in `dtype`; embeddings and output layer stay in
        fp32.
        """
        cast("nn.Module", self.backend).to(dtype)
        return self

    @property
    def dtype(self) -> torch.dtype:
        """In which the layers compute."""
        return next(cast("nn.Module", self.backend).parameters()).dtype

    def forward(self, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (B, T, V) of the token after each position of `tgt_in` (B, T), given `src_ids` (B,
        S).
        """
        logits: Tensor = self.output(self.hidden(src_ids, tgt_in).to(self.output.weight.dtype))
        return logits

    def hidden(self, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
        """Decoder output (B, T, D) before the output layer, teacher-forced on `tgt_in` (B, T)."""
        memory, src_mask = self.encode(src_ids)
        tgt = self._embed(self.tgt_embedding, self.tgt_positions, tgt_in)
        return self.backend.decode(tgt, memory, src_mask)

    def encode(self, src_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Memory (B, S, D) of `src_ids` (B, S), and its mask (B, S), True = may be attended."""
        src_mask = padding_mask(src_ids, pad_id=PAD_ID)
        src = self._embed(self.src_embedding, self.src_positions, src_ids)
        return self.backend.encode(src, src_mask), src_mask

    def start(self, src_ids: Tensor) -> DecoderState:
        """Encode `src_ids` (B, S) for a search."""
        return self.backend.start(*self.encode(src_ids))

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Logits (B, N, V) of the token after `ids` (B, N), the latest of each beam; advances
        `state`.
        """
        self._check_length(state.length + 1)
        tgt = (
            self.tgt_embedding(ids) * self.scale + self.tgt_positions.weight[state.length]
        )  # (B, N, D)
        logits: Tensor = self.output(self.backend.step(tgt, state))
        return logits

    def _embed(self, embedding: nn.Embedding, positions: Positions, ids: Tensor) -> Tensor:
        self._check_length(ids.shape[1])
        out: Tensor = self.dropout(positions(embedding(ids) * self.scale))
        return out.to(self.dtype)

    def _check_length(self, length: int) -> None:
        if length > self.max_len:
            raise ValueError(
                f"{length} tokens, but the model takes {self.max_len}; shorten the input"
            )


def _embedding(vocab_size: int, d_model: int) -> nn.Embedding:
    """An embedding that `initialise` fills: to draw it here too takes time, a second on the `meta`
    device.
    """
    return nn.Embedding(vocab_size, d_model, _weight=torch.empty(vocab_size, d_model))


NORMAL_DEVIATION = 0.02


@torch.no_grad()
def initialise(model: nn.Module, *, kind: str, d_model: int, generator: torch.Generator) -> None:
    """Fill every parameter of `model` anew, by sorted name, so that module order does not matter.

    Embeddings are normal with deviation 1/√D (so that scaling by √D makes them unit), learned
    positions are 0, matrices follow `kind` (`xavier`: Glorot and Bengio 2010; `normal`: deviation
    0.02), biases are 0 and norm gains 1.
    """
    for name, parameter in sorted(model.named_parameters()):
        if "embedding" in name:
            parameter.normal_(std=1 / math.sqrt(d_model), generator=generator)
        elif "positions" in name:
            parameter.zero_()
        elif parameter.dim() == 1:
            parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        elif kind == "normal":
            parameter.normal_(std=NORMAL_DEVIATION, generator=generator)
        else:
            # A packed projection counts as three matrices; as one, its weights would be √2 too
            # small.
            for matrix in parameter.chunk(3 if name.endswith("in_proj_weight") else 1):
                nn.init.xavier_uniform_(matrix, generator=generator)


class Ensemble(nn.Module):
    """The mean of the members' predicted probabilities (Sutskever et al. 2014, 3.6)."""

    def __init__(self, members: Sequence[TranslationModel]) -> None:
        """The `members` must share one vocabulary; all else may differ."""
        super().__init__()
        self.members = nn.ModuleList(members)
        self.longest_sentence = min(member.longest_sentence for member in members)

    @property
    def models(self) -> Sequence[TranslationModel]:
        """The members; where only one model can be used, it is the first."""
        return cast("Sequence[TranslationModel]", self.members)

    def start(self, src_ids: Tensor) -> DecoderState:
        """Encode `src_ids` (B, S) for a search."""
        return EnsembleState([model.start(src_ids) for model in self.models])

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Log-probabilities (B, N, V) of the token after `ids` (B, N), the latest of each beam.

        Advances `state`.
        """
        assert isinstance(state, EnsembleState)
        log_probs = (
            torch.log_softmax(model.step(ids, own).float(), dim=-1)
            for model, own in zip(self.models, state.states, strict=True)
        )
        return reduce(torch.logaddexp, log_probs) - math.log(len(state.states))


@dataclass
class EnsembleState:
    """What each member remembers between steps."""

    states: Sequence[DecoderState]

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        return self.states[0].length

    def keep(self, rows: Tensor) -> None:
        """Keep only the sentences `rows` (M,), in that order."""
        for state in self.states:
            state.keep(rows)

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `beams[b, n]`; `beams` is (B, N)."""
        for state in self.states:
            state.arrange(beams)
