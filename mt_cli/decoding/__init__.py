"""Searches and what they find; `search` has the searches, and needs torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from torch import Tensor

Ids = Sequence[int]
OnDone = Callable[[Sequence[int]], None]
"""Called with the places of the sources whose search has just ended, in the calling thread."""


@dataclass(frozen=True)
class Hyp:
    """One translation that a search found."""

    ids: list[int]
    """Without `bos_id` and `eos_id`."""
    score: float
    """`log_prob` divided by the length penalty; hypotheses are ranked by it."""
    log_prob: float
    """Natural logarithm of its probability, `eos_id` included if it ended with one; where it had to
    begin with given ids, of what follows them.
    """
    num_given: int = 0
    """How many of its ids were given: those of a prefix, and all up to the last placed term."""


@overload
def wu_length_penalty(length: int, alpha: float) -> float: ...
@overload
def wu_length_penalty(length: "Tensor", alpha: float) -> "Tensor": ...
def wu_length_penalty(length: "int | Tensor", alpha: float) -> "float | Tensor":
    """Divisor of the log-probability of `length` tokens with `eos_id` (Wu et al. 2016, eq. 14).

    With `alpha` 0 it is 1, so the most likely hypothesis wins; with 1 it is proportional to
    `length` + 5.
    """
    return ((5 + length) / 6) ** alpha
