"""What both backends, `scratch` and `torch`, promise.

Letters: B sentences, N beams, S source length, T target length, D d_model.
"""

from typing import Protocol

from torch import Tensor


class DecoderState(Protocol):
    """What a decoder remembers between steps, for B sentences of N beams each (one at first)."""

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        ...

    def select(self, sentences: Tensor) -> None:
        """Keep only `sentences` (M,), in that order."""
        ...

    def reorder(self, parents: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `parents[b, n]`, of (B, N).

        N may exceed the number of present beams, as it does after the first step.
        """
        ...


class TransformerBackend(Protocol):
    """An encoder and a decoder; their parameters have the names and shapes of nn.Transformer's.

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
        """State before the first step over `memory` (B, S, D), with one beam."""
        ...

    def step(self, tgt: Tensor, state: DecoderState) -> Tensor:
        """Decoder output (B, N, D) for each beam's next position, embedded as `tgt` (B, N, D).

        Advances `state`.
        """
        ...
