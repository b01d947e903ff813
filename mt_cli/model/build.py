"""Building a model from its config, and knowing its parameters without building it.

Imports torch only when a model is built.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mt_cli.config.schema import ModelConfig
from mt_cli.text.tokenizers import Tokenizers

if TYPE_CHECKING:
    from mt_cli.model.translation_model import TranslationModel

Shape = tuple[int, ...]


def model_shapes(config: ModelConfig, tokenizers: Tokenizers) -> dict[str, Shape]:
    """The shape of each parameter, by name, of a model for `tokenizers`.

    The model is built on PyTorch's `meta` device, where tensors take no memory.
    """
    import torch

    with torch.device("meta"):
        # Sinusoids are no parameters. To compute them there would load PyTorch's compiler, a
        # second's work.
        learned = config.model_copy(update={"positions": "learned"})
        parameters = dict(build_model(learned, tokenizers, seed=0).named_parameters())
    if config.positions == "sinusoidal":
        parameters = {name: each for name, each in parameters.items() if "positions" not in name}
    return {name: tuple(parameter.shape) for name, parameter in parameters.items()}


def num_parameters(shapes: Mapping[str, Shape]) -> int:
    """How many numbers parameters of these shapes hold."""
    return sum(map(math.prod, shapes.values()))


def build_model(config: ModelConfig, tokenizers: Tokenizers, *, seed: int) -> "TranslationModel":
    """A fresh model for the text of `tokenizers`."""
    import torch

    from mt_cli.model.translation_model import TranslationModel

    with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw weights of their own first
        return TranslationModel(
            config,
            tokenizers.src.vocab_size,
            tokenizers.tgt.vocab_size,
            generator=torch.Generator("cpu").manual_seed(seed),
        )
