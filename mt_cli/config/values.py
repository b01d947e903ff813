"""What a table of the file is, and the kinds of values that its keys take.

Knows no section and no key.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mt_cli.config import patterns


class Section(BaseModel):
    """One table of the file: frozen, strict, and closed to unknown keys."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if complaints := list(self._complaints()):
            raise ValueError("\n".join(complaints))
        return self

    def _complaints(self) -> Iterator[str]:
        """What is wrong with keys that are right each by itself."""
        yield from ()


def _tuple_of_list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _count_or_share(value: object) -> object:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    is_share = isinstance(value, float) and 0 <= value < 1
    if not is_count and not is_share:
        found = json.dumps(value, default=str)
        raise ValueError(
            f"expected a whole number such as 400, or a share below 1 such as 0.1, found {found}"
        )
    return value


SplitName = Annotated[str, Field(pattern=patterns.SPLIT)]
Language = Annotated[str, Field(pattern=patterns.LANGUAGE)]
Probability = Annotated[float, Field(ge=0, lt=1)]
# TOML has neither paths nor tuples, the two places where strictness gives way.
FilePath = Annotated[Path, Field(strict=False)]
Splits = Annotated[tuple[SplitName, ...], BeforeValidator(_tuple_of_list)]
Decays = Annotated[tuple[Probability, Probability], BeforeValidator(_tuple_of_list)]
CountOrShare = Annotated[int | float, BeforeValidator(_count_or_share)]
"""`400` is a number of something, `0.1` a share of all there are."""
