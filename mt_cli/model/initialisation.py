"""Initial weights, the same for both backends from the same seed.

Knows parameters by name and shape, never what computes with them.
"""

import math

import torch
from torch import Tensor, nn

NORMAL_DEVIATION = 0.02


@torch.no_grad()
def initialise(model: nn.Module, *, kind: str, d_model: int, generator: torch.Generator) -> None:
    """Fill every parameter of `model` anew, by sorted name, so that module order does not matter.

    Embeddings are normal with deviation 1/√D (so that scaling by √D makes them unit), learned positions
    are 0, matrices follow `kind` (`xavier`: Glorot and Bengio 2010; `normal`: deviation 0.02), biases are 0
    and norm gains 1.
    """
    for name, parameter in sorted(model.named_parameters()):
        if "embedding" in name:
            parameter.normal_(std=1 / math.sqrt(d_model), generator=generator)
        elif "positions" in name:
            parameter.zero_()
        elif parameter.dim() == 1:
            parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        elif kind == "normal":
            parameter.normal_(std=NORMAL_DEVIATION, generator=generator)
        else:
            for matrix in _matrices(name, parameter):
                nn.init.xavier_uniform_(matrix, generator=generator)


def _matrices(name: str, parameter: Tensor) -> tuple[Tensor, ...]:
    """A packed projection counts as three matrices; as one, its weights would be √2 too small."""
    return parameter.chunk(3) if name.endswith("in_proj_weight") else (parameter,)
