"""`TranslationModel`: ids in, logits out, around a swappable backend.

Owns embeddings, positions, tying, the output layer and initial weights.
Letters: B batch, N beams, S source length, T target length, D d_model, V target vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from mt_cli.config.schema import BACKENDS, ModelConfig
from mt_cli.model.cpu_kernels import Dropout
from mt_cli.model.transformer import PositionalEncoding, padding_mask
from mt_cli.text import PAD_ID
from mt_cli.text.tokenizers import Tokenizers


class DecoderState(Protocol):
    """A decoder's state between steps, for B sentences with N beams each (one at first)."""

    @property
    def length(self) -> int:
        """Number of target positions so far."""
        ...

    def select(self, sentences: Tensor) -> None:
        """Keep only `sentences` (M,), in that order."""
        ...

    def reorder(self, parents: Tensor) -> None:
        """Let beam n of sentence b continue its current beam `parents[b, n]`; (B, N).

        N may exceed the number of current beams, as it does after the first step.
        """
        ...


class TransformerBackend(Protocol):
    """An nn.Module with encoder and decoder, with nn.Transformer's parameter names.

    Masks are boolean, True = may be attended. Every source has at least one real position.
    """

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of embedded sources `src` (B, S, D) under `src_mask` (B, S)."""
        ...

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D).

        Position t depends on `tgt` up to t.
        """
        ...

    def start(self, memory: Tensor, src_mask: Tensor) -> DecoderState:
        """The state before the first step over `memory` (B, S, D), with one beam."""
        ...

    def step(self, tgt: Tensor, state: DecoderState) -> Tensor:
        """Decoder output (B, N, D) for each beam's next position, embedded as `tgt` (B, N, D).

        Advances `state`.
        """
        ...


ENCODED_TOGETHER = 512
"""Source tokens, padding included, that a CPU encodes at a time: activations fit into a core's
cache, and sentences are padded only to the length of their neighbours.
"""


class TranslationModel(nn.Module):
    """The Transformer of Vaswani et al. (2017), 3, with common variations."""

    backend: TransformerBackend

    def __init__(
        self,
        config: ModelConfig,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        generator: torch.Generator,
    ) -> None:
        """Draw initial weights from `generator`."""
        super().__init__()
        if config.tie == "all" and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"tie 'all' needs equal vocabularies, found {src_vocab_size} and {tgt_vocab_size}"
            )
        D = config.d_model
        self.max_len = config.max_len
        self.longest_sentence = config.longest_sentence
        """Maximum ids of a sentence, which leaves room for `<s>` or `</s>`."""
        self.scale = math.sqrt(D) if config.scale_embeddings else 1.0
        self.src_embedding = _embedding(src_vocab_size, D)
        self.tgt_embedding = self.src_embedding
        if config.tie != "all":
            self.tgt_embedding = _embedding(tgt_vocab_size, D)
        is_learned = config.positions == "learned"
        self.src_positions = PositionalEncoding(config.max_len, D, is_learned=is_learned)
        self.tgt_positions = PositionalEncoding(config.max_len, D, is_learned=is_learned)
        self.dropout = Dropout(config.dropout)
        self.backend = _build_backend(config)
        self.output = nn.Linear(D, tgt_vocab_size, bias=config.output_bias)
        if config.tie != "none":
            self.output.weight = self.tgt_embedding.weight
        if not self.output.weight.is_meta:  # meta tensors have shapes, but no data
            initialize(self, config, generator=generator)

    def compute_in(self, dtype: torch.dtype) -> "TranslationModel":
        """Make the layers compute in `dtype`, and return self; embeddings and output stay fp32."""
        cast("nn.Module", self.backend).to(dtype)
        return self

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the layers compute."""
        return next(cast("nn.Module", self.backend).parameters()).dtype

    def forward(self, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (B, T, V) after each position of `tgt_in` (B, T), given `src_ids` (B, S)."""
        return self.output(self.hidden(src_ids, tgt_in).to(self.output.weight.dtype))

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
        """Encode `src_ids` (B, S), padded on the right, for a search.

        It is fastest if neighbouring sentences have similar lengths.
        """
        if not src_ids.is_cpu or src_ids.numel() <= ENCODED_TOGETHER:
            return self.backend.start(*self.encode(src_ids))
        lengths = (src_ids != PAD_ID).sum(1).tolist()
        memory = src_ids.new_zeros(
            *src_ids.shape, self.src_embedding.embedding_dim, dtype=self.dtype
        )
        begin = 0
        while begin < len(lengths):
            end = begin + max(1, ENCODED_TOGETHER // lengths[begin])
            longest = max(lengths[begin:end])
            memory[begin:end, :longest], _ = self.encode(src_ids[begin:end, :longest])
            begin = end
        return self.backend.start(memory, padding_mask(src_ids, pad_id=PAD_ID))

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Logits (B, N, V) of the token after `ids` (B, N), the latest of each beam.

        Advances `state`.
        """
        self._check_length(state.length + 1)
        position = self.tgt_positions.weight[state.length]
        tgt = torch.add(position, self.tgt_embedding(ids), alpha=self.scale)  # (B, N, D)
        return self.output(self.backend.step(tgt, state))

    def _embed(self, embedding: nn.Embedding, positions: PositionalEncoding, ids: Tensor) -> Tensor:
        self._check_length(ids.shape[1])
        out: Tensor = self.dropout(positions(embedding(ids) * self.scale))
        return out.to(self.dtype)

    def _check_length(self, length: int) -> None:
        if length > self.max_len:
            raise ValueError(f"{length} tokens, but the model takes at most {self.max_len}")


@torch.no_grad()
def initialize(model: nn.Module, config: ModelConfig, *, generator: torch.Generator) -> None:
    """Fill every parameter of `model`, by sorted name, so that module order does not matter.

    Embeddings are normal with deviation 1/√D (so that scaling by √D makes them unit), learned
    positions are 0, matrices uniform (Glorot and Bengio 2010), biases are 0 and norm gains 1.
    """
    for name, parameter in sorted(model.named_parameters()):
        if "embedding" in name:
            parameter.normal_(std=1 / math.sqrt(config.d_model), generator=generator)
        elif "positions" in name:
            parameter.zero_()
        elif parameter.dim() == 1:
            parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        else:
            # A packed projection counts as three matrices; as one, its weights would be too small
            # by √2.
            for matrix in parameter.chunk(3 if name.endswith("in_proj_weight") else 1):
                nn.init.xavier_uniform_(matrix, generator=generator)


def _build_backend(config: ModelConfig) -> TransformerBackend:
    module, name = BACKENDS[config.backend]
    # Imported lazily, because nn.Transformer is rarely needed. Cast, because each backend accepts
    # only its own type of state.
    return cast("TransformerBackend", getattr(import_module(module), name)(config))


def _embedding(vocab_size: int, d_model: int) -> nn.Embedding:
    """An embedding for `initialize` to fill: drawing weights here would take a second on `meta`."""
    return nn.Embedding(vocab_size, d_model, _weight=torch.empty(vocab_size, d_model))


def build_model(config: ModelConfig, tokenizers: Tokenizers, *, seed: int) -> "TranslationModel":
    """An untrained model for the vocabularies of `tokenizers`."""
    with torch.random.fork_rng(devices=[]):  # PyTorch's layers first draw their own weights
        return TranslationModel(
            config,
            tokenizers.src.vocab_size,
            tokenizers.tgt.vocab_size,
            generator=torch.Generator("cpu").manual_seed(seed),
        )


class Ensemble(nn.Module):
    """The mean of the members' predicted probabilities (Sutskever et al. 2014, 3.6)."""

    def __init__(self, members: Sequence[TranslationModel]) -> None:
        """The `members` must share a vocabulary; everything else may differ."""
        super().__init__()
        self.members = nn.ModuleList(members)
        self.longest_sentence = min(member.longest_sentence for member in members)

    @property
    def models(self) -> Sequence[TranslationModel]:
        """The members; if only one model can be used, it is the first."""
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
    """The states of all members between steps."""

    states: Sequence[DecoderState]

    @property
    def length(self) -> int:
        """Number of target positions so far."""
        return self.states[0].length

    def select(self, sentences: Tensor) -> None:
        """Keep only `sentences` (M,), in that order."""
        for state in self.states:
            state.select(sentences)

    def reorder(self, parents: Tensor) -> None:
        """Let beam n of sentence b continue its current beam `parents[b, n]`; (B, N)."""
        for state in self.states:
            state.reorder(parents)
