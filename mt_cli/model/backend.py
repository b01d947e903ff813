"""What a backend, the swappable middle of the model, has to do.

Knows vectors, not ids. Letters: B batch, N beams, S source length, T target length, D d_model.
"""

from typing import Protocol

from torch import Tensor


class DecoderState(Protocol):
    """What a decoder remembers between steps: B sentences, of N beams each (one at the start)."""

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with the sentences `rows` (M,) only, in that order."""
        ...

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b go on from its beam `beams[b, n]`, (B, N)."""
        ...


class TransformerBackend(Protocol):
    """An encoder and a decoder whose parameters bear the names and shapes of nn.Transformer's.

    Masks are boolean, True = may be attended. Every source has at least one real position.
    """

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Memory (B, S, D) of embedded sources `src` (B, S, D) under `src_mask` (B, S)."""
        ...

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """Decoder output (B, T, D), position t of it from `tgt` (B, T, D) up to t and `memory` (B, S, D)."""
        ...

    def start(self, memory: Tensor, src_mask: Tensor) -> DecoderState:
        """State before the first step over `memory` (B, S, D), of one beam."""
        ...

    def step(self, tgt: Tensor, state: DecoderState) -> Tensor:
        """Decoder output (B, N, D) for each beam's next position, embedded as `tgt` (B, N, D).

        Advances `state`.
        """
        ...
