"""Search: `Hyp` and the length penalty; the searches are in `search`, which needs torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from torch import Tensor

Ids = Sequence[int]
OnDone = Callable[[Sequence[int]], None]
"""Called with the indices of sources whose search has finished, in the calling thread."""


@dataclass(frozen=True)
class Hyp:
    """A hypothesis found by a search."""

    ids: list[int]
    """Without `bos_id` and `eos_id`."""
    score: float
    """`log_prob` divided by the length penalty; ranks hypotheses."""
    log_prob: float
    """Natural log-probability of the ids after any given prefix, with `eos_id` if it ended with
    one.
    """
    num_given: int = 0
    """Number of given ids: those of a prefix, and all up to the last placed term."""


@overload
def wu_length_penalty(length: int, alpha: float) -> float: ...
@overload
def wu_length_penalty(length: "Tensor", alpha: float) -> "Tensor": ...
def wu_length_penalty(length: "int | Tensor", alpha: float) -> "float | Tensor":
    """Divisor for the log-probability of `length` tokens with `eos_id` (Wu et al. 2016, eq. 14).

    With `alpha` 0 it is 1, so the most likely hypothesis wins; with `alpha` 1 it is proportional to
    `length` + 5.
    """
    return ((5 + length) / 6) ** alpha
