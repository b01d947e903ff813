"""A sentence and a translation as the model is taught them.

Knows tokens and tensors, not how a translation is found.
"""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, eq=False)
class TeacherForced:
    """A sentence and a translation, as the model is given them when it is taught: one row each."""

    source: str
    translation: str
    src_ids: Tensor = field(repr=False)
    """(1, S), ending in `</s>`."""
    tgt_in: Tensor = field(repr=False)
    """(1, T), beginning with `<s>`."""
    src_tokens: tuple[str, ...] = field(repr=False)
    """What stands at each of the S source positions."""
    tgt_tokens: tuple[str, ...] = field(repr=False)
    """What stands at each of the T target positions."""
    predicted_tokens: tuple[str, ...] = field(repr=False)
    """What is predicted at each of them: the next token."""
