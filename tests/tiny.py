"""Tiny models and splits, small enough to compare with a computation by hand."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from mt_cli.config import schema
from mt_cli.config.schema import ModelConfig
from mt_cli.data.encoded import EncodedSplit, Sentences
from mt_cli.machine.device import Runtime
from mt_cli.model.model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID

MODEL_OPTIONS: dict[str, tuple[object, ...]] = {
    "norm": ("pre", "post"),
    "final_norm": (True, False),
    "positions": ("sinusoidal", "learned"),
    "scale_embeddings": (True, False),
    "tie": ("none", "decoder", "all"),
    "activation": ("relu", "gelu"),
    "output_bias": (True, False),
}
"""Every choice that changes what a model computes."""

BACKENDS = tuple(schema.BACKENDS)
VOCAB_SIZE = 11
CPU = Runtime(torch.device("cpu"), "fp32")

# Different numbers of layers, so that an encoder taken for a decoder shows.
TINY = ModelConfig(
    d_model=8,
    num_heads=2,
    encoder_layers=2,
    decoder_layers=1,
    d_ff=16,
    max_len=16,
    tie="none",
    dropout=0.0,
)


def tiny_model(
    backend: str = "scratch",
    *,
    seed: int = 0,
    src_vocab_size: int = VOCAB_SIZE,
    tgt_vocab_size: int = VOCAB_SIZE,
    options: Mapping[str, object] = MappingProxyType({}),
    **named: object,
) -> TranslationModel:
    """A freshly initialised model in eval mode; all options are those of `ModelConfig`."""
    config = TINY.model_copy(update={"backend": backend, **options, **named})
    generator = torch.Generator().manual_seed(seed)
    return TranslationModel(config, src_vocab_size, tgt_vocab_size, generator=generator).eval()


@torch.no_grad()
def randomised(model: TranslationModel, *, seed: int = 1, std: float = 0.5) -> TranslationModel:
    """`model` with every parameter drawn anew, biases and norms too, so that each one matters."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        parameter.normal_(std=std, generator=generator)
        if "norm" in name and name.endswith("weight"):
            parameter.add_(1.0)
    return model


def random_ids(
    *shape: int, seed: int = 0, lengths: Sequence[int] = (), vocab_size: int = VOCAB_SIZE
) -> Tensor:
    """Ids of real tokens; rows are padded after `lengths`, where given."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(EOS_ID + 1, vocab_size, shape, generator=generator)
    for row, length in zip(ids, lengths, strict=False):
        row[length:] = PAD_ID
    return ids


def split_of(pairs: Sequence[tuple[list[int], list[int]]]) -> EncodedSplit:
    """Pairs of ids, in the type that prepared data with a small vocabulary have."""

    def of_side(sentences: Sequence[list[int]]) -> Sentences:
        ((ids, offsets),) = Sentences.of(sentences).arrays
        return Sentences(((ids.astype(np.uint16), offsets),))

    return EncodedSplit(of_side([src for src, _ in pairs]), of_side([tgt for _, tgt in pairs]))


def random_pairs(
    count: int, *, seed: int = 0, longest: int = 7, vocab_size: int = VOCAB_SIZE
) -> list[tuple[list[int], list[int]]]:
    """Pairs of different lengths, from 1 to `longest`."""
    generator = torch.Generator().manual_seed(seed)

    def sentences() -> Iterator[list[int]]:
        for length in torch.randint(1, longest + 1, (count,), generator=generator).tolist():
            yield torch.randint(EOS_ID + 1, vocab_size, (length,), generator=generator).tolist()

    return list(zip(sentences(), sentences(), strict=True))


def covering(
    choices: Mapping[str, Sequence[object]], *, together: int = 3
) -> list[dict[str, object]]:
    """Few combinations of `choices` in which every combination of `together` options occurs."""
    names = list(choices)
    groups = list(combinations(range(len(names)), together))
    left = {
        (group, values)
        for group in groups
        for values in product(*(choices[names[i]] for i in group))
    }
    rows = list(product(*choices.values()))
    chosen = []
    while left:
        row = max(
            rows,
            key=lambda row: sum((group, tuple(row[i] for i in group)) in left for group in groups),
        )
        left -= {(group, tuple(row[i] for i in group)) for group in groups}
        chosen.append(dict(zip(names, row, strict=True)))
    return chosen


def with_bos(ids: Tensor) -> Tensor:
    """`ids` (B, T) after `<s>`, (B, T+1)."""
    return torch.cat([torch.full_like(ids[:, :1], BOS_ID), ids], dim=1)
