"""Batches: sizes in few steps, each pair once within the budget, and teacher forcing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import split_of

from mt_cli.data import batching
from mt_cli.data.batching import (
    BatchShape,
    PlannedBatch,
    bucket_size,
    bucket_sizes,
    bucket_sizes_below,
    collate,
    pad_ids,
    plan_epoch,
    shuffled,
)

pair_lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)
budgets = st.integers(1, 120)
MAX_WIDTH = 31


# Sizes: few, and close above what is asked for


def test_there_are_four_sizes_to_each_doubling() -> None:
    found = sorted(set(bucket_sizes(np.arange(1, 65)).tolist()))
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]


@settings(max_examples=40)
@given(st.integers(1, 10**6))
def test_next_size_is_less_than_a_quarter_above(size: int) -> None:
    assert size <= bucket_size(size) < 1.25 * size
    assert bucket_size(bucket_size(size)) == bucket_size(size)


def test_each_size_knows_the_one_below() -> None:
    found = sorted(set(bucket_sizes(np.arange(1, 1000)).tolist()))
    assert bucket_sizes_below(np.array(found)).tolist() == [0, *found[:-1]]


# The plan of an epoch


def planned(
    lengths: Sequence[tuple[int, int]], *, budget: int, seed: int = 0, pool_batches: int = 100
) -> list[PlannedBatch]:
    """The planned batches of pairs of `lengths`."""
    split = split_of([([5] * src, [5] * tgt) for src, tgt in lengths])
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(batching, "POOL_BATCHES", pool_batches)
        rng = np.random.default_rng(seed)
        return list(plan_epoch(split, tokens_per_batch=budget, max_width=MAX_WIDTH, rng=rng))


def plan(lengths: Sequence[tuple[int, int]], *, budget: int, seed: int = 0) -> list[list[int]]:
    """The pairs of each planned batch."""
    return [batch.indices.tolist() for batch in planned(lengths, budget=budget, seed=seed)]


def padded_tokens(batch: PlannedBatch) -> int:
    """Places of the larger side of `batch`, padding, `</s>` and empty rows counted."""
    return batch.shape.rows * max(batch.shape.src_width, batch.shape.tgt_width)


many_lengths = [(3 + i % 17, 2 + i % 17 + i % 3) for i in range(500)]


@settings(max_examples=60)
@given(pair_lengths, budgets, st.integers(1, 3))
def test_every_pair_comes_once_in_a_batch_that_it_fits(
    lengths: list[tuple[int, int]], budget: int, pool_batches: int
) -> None:
    batches = planned(lengths, budget=budget, pool_batches=pool_batches)
    assert sorted(i for batch in batches for i in batch.indices) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch.indices) <= batch.shape.rows
        assert batch.shape.rows == 1 or padded_tokens(batch) <= budget
        assert max(lengths[i][0] for i in batch.indices) < batch.shape.src_width <= MAX_WIDTH
        assert max(lengths[i][1] for i in batch.indices) < batch.shape.tgt_width <= MAX_WIDTH


@pytest.mark.parametrize("longer", [(9, 3), (3, 9)], ids=["source", "target"])
def test_a_pair_beyond_the_budget_stands_alone(longer: tuple[int, int]) -> None:
    batches = plan([(1, 1), longer, (1, 1)], budget=8)
    assert sorted(map(sorted, batches)) == [[0, 2], [1]]


def test_epochs_differ_in_order_and_in_company() -> None:
    first, second = plan(many_lengths, budget=100, seed=1), plan(many_lengths, budget=100, seed=2)
    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}


def test_pairs_of_a_batch_are_alike_in_length() -> None:
    places = sum(padded_tokens(batch) for batch in planned(many_lengths, budget=200))
    assert sum(1 + max(pair) for pair in many_lengths) / places > 0.88


def test_an_epoch_has_few_shapes_and_little_padding() -> None:
    # Lengths as in Multi30k: half of all sentences have 15 tokens or fewer, one in a hundred has
    # 33.
    rng = np.random.default_rng(0)
    src = np.clip(np.exp(rng.normal(2.7, 0.35, 8_000)), 3, 60).astype(int)
    tgt = np.clip(src + rng.normal(0, 2.5, 8_000).round(), 3, 60).astype(int)
    split = split_of([([5] * s, [5] * t) for s, t in zip(src, tgt, strict=True)])
    shapes: set[BatchShape] = set()
    places = 0
    for epoch in range(3):
        rng = np.random.default_rng(epoch)
        for batch in plan_epoch(split, tokens_per_batch=2048, max_width=256, rng=rng):
            shapes.add(batch.shape)
            places += batch.shape.rows * (batch.shape.src_width + batch.shape.tgt_width)
    assert len(shapes) < 45
    assert 1 - 3 * (src.sum() + tgt.sum() + 2 * len(src)) / places < 0.12


def test_batches_of_a_hand_worked_case() -> None:
    # With </s>: widths 9 → 10 and 5, of which 40 places hold four and eight; one of the long pairs
    # is left.
    batches = planned([(8, 8)] * 5 + [(4, 4)] * 8, budget=40)
    shapes = sorted((len(batch.indices), batch.shape) for batch in batches)
    assert shapes == [
        (1, BatchShape(1, 10, 10)),
        (4, BatchShape(4, 10, 10)),
        (8, BatchShape(8, 5, 5)),
    ]


@pytest.mark.parametrize("num_processes", [2, 3])
def test_processes_share_a_batch_in_one_shape(num_processes: int) -> None:
    (batch,) = planned([(4, 4)] * 7, budget=40)
    shards = [batch.shard(rank, of=num_processes) for rank in range(num_processes)]
    assert sorted(int(i) for shard in shards if shard for i in shard.indices) == list(range(7))
    assert {shard.shape for shard in shards if shard} == {BatchShape(-(-7 // num_processes), 5, 5)}


def test_rows_left_over_hold_one_source_token_and_no_target() -> None:
    batch = collate(split_of([([5, 6], [7])]), [0], BatchShape(rows=3, src_width=4, tgt_width=2))
    assert batch.src_ids.tolist() == [[5, 6, 3, 0], [3, 0, 0, 0], [3, 0, 0, 0]]
    assert batch.tgt_ids.tolist() == [[2, 7, 3], [0, 0, 0], [0, 0, 0]]
    assert batch.tgt_places.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [([[1, 2, 3], [4]], [[1, 2, 3], [4, 0, 0]]), ([[], [5]], [[0], [5]]), ([[]], [[]]), ([], [])],
    ids=["ragged", "one empty", "only empty", "none"],
)
def test_rows_are_padded_on_the_right(
    sequences: list[list[int]], expected: list[list[int]]
) -> None:
    assert pad_ids(sequences).tolist() == expected


portion_lists = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40)
@given(portion_lists, st.integers(0, 5))
def test_each_portion_comes_as_often_as_its_share_says(
    portions: list[tuple[int, float]], seed: int
) -> None:
    counts = Counter(shuffled(portions, np.random.default_rng(seed)).tolist())
    begin = 0
    for size, share in portions:
        of_portion = [counts[i] for i in range(begin, begin + size)]
        assert sum(of_portion) == max(min(size, 1), round(size * share))
        # None comes a second time before all have come once.
        assert set(of_portion) <= {int(share), int(share) + 1}
        begin += size
    assert counts.keys() <= set(range(begin))


def test_an_epoch_holds_of_each_portion_what_its_share_says() -> None:
    whole = split_of([([5] * (1 + i % 7), [5] * (1 + i % 5)) for i in range(30)])
    split = replace(whole, portions=((20, 1.0), (10, 0.5)))
    epochs = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        batches = plan_epoch(split, tokens_per_batch=40, max_width=MAX_WIDTH, rng=rng)
        epochs.append([int(i) for batch in batches for i in batch.indices])
    for epoch in epochs:
        assert sorted(epoch)[:20] == list(range(20))
        assert len(set(epoch)) == len(epoch) == 25
    assert set(epochs[0]) != set(epochs[1])


def test_sentences_end_and_the_target_is_predicted_one_place_ahead() -> None:
    batch = collate(split_of([([5, 6], [7]), ([8], [9, 10, 4]), ([], [])]), [1, 0, 2])
    assert batch.src_ids.tolist() == [[8, 3, 0], [5, 6, 3], [3, 0, 0]]
    assert batch.tgt_in.tolist() == [[2, 9, 10, 4], [2, 7, 3, 0], [2, 3, 0, 0]]
    assert batch.tgt_out.tolist() == [[9, 10, 4, 3], [7, 3, 0, 0], [3, 0, 0, 0]]


def test_a_batch_on_another_device_is_the_same() -> None:
    batch = collate(split_of([([5, 6, 7], [4]), ([8], [9, 10, 4, 5])]), [0, 1])
    moved = batch.to(torch.device("cpu", 0))  # not `cpu`, where it would stay as it is
    assert moved.src_ids is not batch.src_ids
    for own, other in zip(batch.tensors, moved.tensors, strict=True):
        assert own.equal(other)
    assert [each.shape for each in batch.to(torch.device("meta")).tensors] == [
        each.shape for each in batch.tensors
    ]
