"""The batches of an epoch: their shapes and padding, and an order of updates for measuring."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mt_cli.artefacts.prepared import open_prepared
from mt_cli.config import Config
from mt_cli.data.batching import BatchShape, plan_epoch

if TYPE_CHECKING:
    from mt_cli.training.trainer import Update


@dataclass(frozen=True)
class Epoch:
    """What an epoch's batches are like."""

    num_shapes: int
    padding: float
    """Share of the places that hold padding."""
    padding_of_classic: float


def describe_epoch(config: Config, data: Path, *, seed: int, rows_of_classic: int) -> Epoch:
    """The first epoch of `config` over the prepared folder `data`, and random batches beside it."""
    split = open_prepared(data).split("train")
    sides = split.src.lengths + 1, split.tgt.lengths + 1
    order = np.random.default_rng(seed).permutation(len(split))
    random = [order[begin : begin + rows_of_classic] for begin in range(0, len(order), rows_of_classic)]
    planned = plan_epoch(
        split,
        tokens_per_batch=config.training.tokens_per_batch,
        max_width=config.model.max_len,
        rng=np.random.default_rng([seed, 0]),  # as the trainer draws its first epoch
    )
    shapes = [batch.shape for batch in planned]
    places_of_classic = sum(len(batch) * int(side[batch].max()) for batch in random for side in sides)
    places = sum(shape.rows * (shape.src_width + shape.tgt_width) for shape in shapes)
    real = sum(int(side.sum()) for side in sides)
    return Epoch(len(set(shapes)), 1 - real / places, 1 - real / places_of_classic)


def new_shapes_first(updates: "list[Update]") -> "list[Update]":
    """`updates`, with those in front that have a shape which those before them have not."""
    seen: set[BatchShape] = set()
    order: tuple[list[Update], list[Update]] = ([], [])
    for update in updates:
        shapes = {batch.shape for batch in update}
        order[shapes <= seen].append(update)
        seen |= shapes
    return order[0] + order[1]
