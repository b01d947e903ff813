"""`Sampling`: how tokens are drawn at random. Needs no torch; `search` does the drawing."""

from dataclasses import dataclass

from mt_cli.errors import Option, UsageError

MIN_TEMPERATURE = 1e-6
MAX_TEMPERATURE = 1e6
"""Far outside, fp32 overflows and gives NaN."""


@dataclass(frozen=True)
class Sampling:
    """How the model's distribution is changed before a token is drawn."""

    temperature: float = 1.0
    """Divisor of the logits: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int = 0
    """Draw only from this many of the most likely tokens (Fan et al. 2018); 0 is no limit."""
    top_p: float = 1.0
    """Draw only from the smallest set of tokens with this total probability (Holtzman et al.
    2020).
    """

    def __post_init__(self) -> None:
        if not MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:
            raise UsageError(
                Option("temperature"),
                f": expected a number from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:,.0f}, "
                f"found {self.temperature!r}",
            )
        if self.top_k < 0:
            raise UsageError(
                Option("top_k"), f": expected a whole number from 0, found {self.top_k!r}"
            )
        if not 0 <= self.top_p <= 1:
            raise UsageError(
                Option("top_p"), f": expected a number from 0 to 1, found {self.top_p!r}"
            )
