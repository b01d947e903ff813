"""Weights for a model with fewer layers, taken from a deeper one (Shleifer and Rush 2020).

Knows parameters by name, never a config or a file.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from torch import Tensor

_LAYER = re.compile(r"(backend\.(?:encoder|decoder)\.layers\.)(\d+)(\..+)")


def kept_layers(num_layers: int, num_kept: int) -> list[int]:
    """Which of `num_layers` layers, counted from 0, a model with `num_kept` takes over.

    The first and the last, and others evenly between them; where one is kept, the first.
    """
    assert 1 <= num_kept <= num_layers
    if num_kept == 1:
        return [0]
    return [round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept)]


def weights_of_fewer_layers(weights: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """The `weights` that a model with parameters of these `names` takes over.

    That model has as many layers or fewer than the one of `weights`, and is otherwise the same.
    """
    deep, shallow = _depths(weights), _depths(names)
    kept = {stack: kept_layers(deep[stack], shallow[stack]) for stack in shallow}

    def name_there(name: str) -> str:
        match = _LAYER.fullmatch(name)
        if match is None:
            return name
        stack, layer, rest = match.groups()
        return f"{stack}{kept[stack][int(layer)]}{rest}"

    return {name: weights[name_there(name)] for name in names}


def _depths(names: Iterable[str]) -> Counter[str]:
    """How many layers each stack has."""
    layers = {match.group(1, 2) for name in names if (match := _LAYER.fullmatch(name))}
    return Counter(stack for stack, _ in layers)
