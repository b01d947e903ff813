"""Search over next-token functions. Here: what a search finds, and how it may draw; neither needs
torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mt_cli.errors import Option, UsageError

if TYPE_CHECKING:
    from torch import Tensor

Ids = Sequence[int]
OnDone = Callable[[Sequence[int]], None]
"""Is told the places of the sources whose search has just ended; always in the calling thread."""
LEAST_TEMPERATURE, MOST_TEMPERATURE = 1e-6, 1e6
"""Far outside, fp32 overflows and gives NaN."""


@dataclass(frozen=True)
class Hyp:
    """One translation that a search found."""

    ids: list[int]
    """Without `bos_id` and `eos_id`."""
    score: float
    """`log_prob` divided by the length penalty; hypotheses are ranked by it."""
    log_prob: float
    """Natural logarithm of its probability, `eos_id` included if it ended with one."""


def penalty(length: "int | Tensor", alpha: float) -> "float | Tensor":
    """Divisor of the log-probability of `length` tokens, `eos_id` included (Wu et al. 2016, eq.
    14).

    With `alpha` 0 it is 1, so the most likely hypothesis wins; with 1 it is proportional to
    `length` + 5.
    """
    return ((5 + length) / 6) ** alpha


@dataclass(frozen=True)
class Sampling:
    """How the model's distribution is changed before a token is drawn."""

    temperature: float = 1.0
    """Divisor of the logits: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int = 0
    """Draw only from this many of the most likely tokens (Fan et al. 2018); 0 is no limit."""
    top_p: float = 1.0
    """Draw only from the smallest set of tokens with this total probability (Holtzman et al. 2020)."""

    def __str__(self) -> str:
        return f"-t{self.temperature:g}-k{self.top_k}-p{self.top_p:g}"

    def __post_init__(self) -> None:
        least, most = LEAST_TEMPERATURE, MOST_TEMPERATURE
        if not least <= self.temperature <= most:
            raise UsageError(
                Option("temperature"),
                f": expected a number from {least:g} to {most:,.0f}, found {self.temperature!r}",
            )
        if self.top_k < 0:
            raise UsageError(
                Option("top_k"), f": expected a whole number from 0, found {self.top_k!r}"
            )
        if not 0 <= self.top_p <= 1:
            raise UsageError(
                Option("top_p"), f": expected a number from 0 to 1, found {self.top_p!r}"
            )
