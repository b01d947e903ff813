"""A model with fewer layers takes over the weights of a deeper one, to be trained on from there.

Shleifer and Rush 2020, "Pre-trained Summarization Distillation", section 3.1 ("shrink and fine-tune").
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from torch import Tensor

_LAYER = re.compile(r"(backend\.(?:encoder|decoder)\.layers\.)(\d+)(\..+)")


def kept_layers(num_layers: int, num_kept: int) -> list[int]:
    """Which of `num_layers` layers, counted from 0, a model with `num_kept` takes over.

    The first and the last, and others evenly between them; of one layer, the first.
    """
    if num_kept == 1:
        return [0]
    return [round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept)]


def weights_of_fewer_layers(weights: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """The `weights` that a model with parameters of these `names` takes over.

    That model has as many layers or fewer than the one of `weights`, and is otherwise the same.
    """
    there, kept = _depths(weights), _depths(names)
    sources = {stack: kept_layers(there[stack], kept[stack]) for stack in kept}

    def source(name: str) -> str:
        match = _LAYER.fullmatch(name)
        if match is None:
            return name
        stack, layer, rest = match.groups()
        return f"{stack}{sources[stack][int(layer)]}{rest}"

    return {name: weights[source(name)] for name in names}


def _depths(names: Iterable[str]) -> Counter[str]:
    """How many layers each stack has."""
    layers = {match.group(1, 2) for name in names if (match := _LAYER.fullmatch(name))}
    return Counter(stack for stack, _ in layers)
