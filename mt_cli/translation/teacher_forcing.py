"""A sentence and its own translation as the model is taught them, and who attends to whom in them.

Knows tokens and tensors, not how a translation is found.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from mt_cli.model.attention_maps import MapKind


@dataclass(frozen=True)
class TeacherForced:
    """A sentence and its own translation, as the model is given them when it is taught: one row each."""

    source: str
    translation: str
    src_ids: Tensor
    """(1, S), ending in `</s>`."""
    tgt_in: Tensor
    """(1, T), beginning with `<s>`."""
    src_tokens: tuple[str, ...]
    """What stands at each of the S source positions."""
    tgt_tokens: tuple[str, ...]
    """What stands at each of the T target positions."""
    predicted_tokens: tuple[str, ...]
    """What is predicted at each of them: the next token."""


@dataclass(frozen=True)
class Attention:
    """The attention maps of one sentence and its translation."""

    pair: TeacherForced
    weights: Mapping[MapKind, Tensor]
    """`encoder` (L, H, S, S), `decoder` (L, H, T, T), `cross` (L, H, T, S)."""

    def labels(self, kind: MapKind) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tokens of the rows, which attend, and of the columns, which are attended to.

        A row of the cross-attention is labelled with the token that was predicted there.
        """
        if kind == "encoder":
            return self.pair.src_tokens, self.pair.src_tokens
        if kind == "decoder":
            return self.pair.tgt_tokens, self.pair.tgt_tokens
        return self.pair.predicted_tokens, self.pair.src_tokens
