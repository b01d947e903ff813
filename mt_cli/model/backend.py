"""The interface of a backend, the swappable middle of the model.

Knows vectors, not ids. Letters: B batch, N beams, S source length, T target length, D d_model.
"""

from typing import Protocol

from torch import Tensor


class DecoderState(Protocol):
    """What a decoder remembers between steps, for B sentences of N beams each (one at the start)."""

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Keep only the sentences `rows` (M,), in that order."""
        ...

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `beams[b, n]`; `beams` is (B, N).

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
        """Output (B, T, D) for `tgt` (B, T, D) over `memory` (B, S, D); position t sees `tgt` up to t."""
        ...

    def start(self, memory: Tensor, src_mask: Tensor) -> DecoderState:
        """State before the first step over `memory` (B, S, D), with one beam."""
        ...

    def step(self, tgt: Tensor, state: DecoderState) -> Tensor:
        """Decoder output (B, N, D) for each beam's next position, embedded as `tgt` (B, N, D).

        Advances `state`.
        """
        ...
