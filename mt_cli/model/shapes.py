"""Parameters of a model by name and shape, known from its options alone, without torch."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, TypeVar

from mt_cli.errors import ResourceError
from mt_cli.machine.processes import memory_size

GIB = 1 << 30
NUMBER_BYTES = 4
IN_TRAINING = 4
"""Numbers that training holds for each parameter: the weight, its gradient and Adam's two means."""
SMALLER = "lower model.d_model, model.d_ff or the number of layers"
Shape = tuple[int, ...]
T = TypeVar("T")


def parameter_shapes(
    *,
    src_vocab_size: int,
    tgt_vocab_size: int,
    d_model: int,
    encoder_layers: int,
    decoder_layers: int,
    d_ff: int,
    final_norm: bool,
    positions: Literal["sinusoidal", "learned"],
    max_len: int,
    tie: Literal["none", "decoder", "all"],
    output_bias: bool,
    **_: object,
) -> dict[str, Shape]:
    """The shape of each parameter of the model with these options of `ModelConfig`, a shared one once."""
    shapes: dict[str, Shape] = {"src_embedding.weight": (src_vocab_size, d_model)}
    if tie != "all":
        shapes["tgt_embedding.weight"] = (tgt_vocab_size, d_model)
    if positions == "learned":
        shapes |= dict.fromkeys(("src_positions.weight", "tgt_positions.weight"), (max_len, d_model))
    for stack, num_layers in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        of_layer = dict(_layer(d_model, d_ff, is_decoder=stack == "decoder"))
        for i in range(num_layers):
            shapes |= {f"backend.{stack}.layers.{i}.{name}": shape for name, shape in of_layer.items()}
        if final_norm:
            shapes |= {f"backend.{stack}.norm.{name}": (d_model,) for name in ("weight", "bias")}
    if tie == "none":
        shapes["output.weight"] = (tgt_vocab_size, d_model)
    if output_bias:
        shapes["output.bias"] = (tgt_vocab_size,)
    return shapes


def _layer(d_model: int, d_ff: int, *, is_decoder: bool) -> Iterator[tuple[str, Shape]]:
    for attention in ("self_attn", "multihead_attn") if is_decoder else ("self_attn",):
        yield f"{attention}.in_proj_weight", (3 * d_model, d_model)
        yield f"{attention}.in_proj_bias", (3 * d_model,)
        yield f"{attention}.out_proj.weight", (d_model, d_model)
        yield f"{attention}.out_proj.bias", (d_model,)
    yield "linear1.weight", (d_ff, d_model)
    yield "linear1.bias", (d_ff,)
    yield "linear2.weight", (d_model, d_ff)
    yield "linear2.bias", (d_model,)
    for norm in ("norm1", "norm2", "norm3") if is_decoder else ("norm1", "norm2"):
        yield f"{norm}.weight", (d_model,)
        yield f"{norm}.bias", (d_model,)


def num_parameters(shapes: Mapping[str, Shape]) -> int:
    """How many numbers parameters of these shapes hold."""
    return sum(map(math.prod, shapes.values()))


def check_fits_memory(
    shapes: Mapping[str, Shape],
    *,
    whose: str = "the model",
    memory: int | None = None,
    is_trained: bool = False,
) -> None:
    """Make sure that a model whose parameters have `shapes` can be held, or trained if it `is_trained`.

    `memory` is how many bytes there are, by default the machine's. Batches come on top: how much they take
    shows when the first is computed.

    Raises:
        ResourceError: it does not fit.
    """
    memory = memory or memory_size()
    numbers = num_parameters(shapes)
    needed = numbers * NUMBER_BYTES * (IN_TRAINING if is_trained else 1)
    if memory is not None and needed > memory:
        verb = "and their training take" if is_trained else "take"
        raise ResourceError(
            f"{whose} does not fit: {numbers:,} parameters {verb} {needed / GIB:,.1f} GiB, and there "
            f"are {memory / GIB:,.1f} GiB; {SMALLER}"
        )


# A model with fewer layers, made from a deeper one (Shleifer and Rush 2020)

_LAYER = re.compile(r"(backend\.(?:encoder|decoder)\.layers\.)(\d+)(\..+)")


def kept_layers(num_layers: int, num_kept: int) -> list[int]:
    """Which of `num_layers` layers, counted from 0, a model with `num_kept` takes over.

    The first and the last, and others evenly between them; where one is kept, the first.
    """
    assert 1 <= num_kept <= num_layers
    if num_kept == 1:
        return [0]
    return [round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept)]


def weights_of_fewer_layers(weights: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
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
