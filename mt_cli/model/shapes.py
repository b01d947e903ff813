"""Parameters of a model by name and shape, known from its options alone: nothing is built.

Says how large a model will be, and what its file of weights has to hold; a test compares it with real models.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from mt_cli.errors import ResourceError
from mt_cli.machine.hardware import GIB
from mt_cli.machine.memory_limit import usable_memory

NUMBER_BYTES = 4
SMALLER = "lower model.d_model, model.d_ff or the number of layers"
IN_TRAINING = 4
"""Numbers that training holds for each parameter: the weight, its gradient and Adam's two means."""
Shape = tuple[int, ...]


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


def num_parameters(shapes: Mapping[str, Shape]) -> int:
    """How many numbers parameters of these shapes hold."""
    return sum(map(math.prod, shapes.values()))


def check_fits_memory(
    shapes: Mapping[str, Shape], *, whose: str = "the model", remedy: str = SMALLER
) -> None:
    """Make sure that this process can hold a model whose parameters have `shapes`.

    Raises:
        ResourceError: it cannot; the text names it as `whose` and ends with the `remedy`.
    """
    memory = usable_memory()
    _check_fits(
        num_parameters(shapes), numbers_each=1, memory=memory, verb="take", whose=whose, remedy=remedy
    )


def check_training_fits(shapes: Mapping[str, Shape], *, memory: int | None) -> None:
    """Make sure that a model whose parameters have `shapes` can be built, and trained in `memory` bytes.

    Batches come on top: how much they take shows when the first is computed.

    Raises:
        ResourceError: it cannot.
    """
    check_fits_memory(shapes)
    _check_fits(
        num_parameters(shapes),
        numbers_each=IN_TRAINING,
        memory=memory,
        verb="and their training take",
        whose="the model",
        remedy=SMALLER,
    )


def _check_fits(
    num_numbers: int, *, numbers_each: int, memory: int | None, verb: str, whose: str, remedy: str
) -> None:
    needed = num_numbers * numbers_each * NUMBER_BYTES
    if memory is not None and needed > memory:
        raise ResourceError(
            f"{whose} does not fit: {num_numbers:,} parameters {verb} {needed / GIB:,.1f} GiB, and there "
            f"are {memory / GIB:,.1f} GiB; {remedy}"
        )


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
