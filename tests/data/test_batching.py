"""Batches: sizes in few steps, each pair once within the budget, and teacher forcing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import split_of

from mt_cli.data import batching
from mt_cli.data.batching import BatchShape, PlannedBatch, collate, plan_epoch
from mt_cli.data.encoded import Sentences

pair_lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)
MAX_WIDTH = 31


def planned(
    lengths: Sequence[tuple[int, int]],
    *,
    budget: int,
    seed: int = 0,
    max_blocks: int = batching.MAX_BLOCKS,
) -> list[PlannedBatch]:
    """The planned batches of pairs of `lengths`."""
    split = split_of([([5] * src, [5] * tgt) for src, tgt in lengths])
    rng = np.random.default_rng(seed)
    with patch.object(batching, "MAX_BLOCKS", max_blocks):
        return list(plan_epoch(split, tokens_per_batch=budget, max_width=MAX_WIDTH, rng=rng))


@settings(max_examples=60)
@given(pair_lengths, st.integers(1, 120), st.sampled_from([1, 5, 20, batching.MAX_BLOCKS]))
def test_every_pair_comes_once_in_a_batch_that_it_fits(
    lengths: list[tuple[int, int]], budget: int, max_blocks: int
) -> None:
    batches = planned(lengths, budget=budget, max_blocks=max_blocks)
    assert sorted(i for batch in batches for i in batch.indices) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch.indices) <= batch.shape.rows
        widest = max(batch.shape.src_width, batch.shape.tgt_width)
        assert batch.shape.rows == 1 or batch.shape.rows * widest <= budget
        assert max(lengths[i][0] for i in batch.indices) < batch.shape.src_width <= MAX_WIDTH
        assert max(lengths[i][1] for i in batch.indices) < batch.shape.tgt_width <= MAX_WIDTH


def test_epochs_differ_in_order_and_in_company() -> None:
    lengths = [(3 + i % 17, 2 + i % 17 + i % 3) for i in range(500)]
    first, second = (
        [frozenset(batch.indices.tolist()) for batch in planned(lengths, budget=100, seed=seed)]
        for seed in (1, 2)
    )
    assert set(first) != set(second)
    assert list(map(len, first)) != list(map(len, second))


def test_a_pool_of_a_large_corpus_has_pairs_from_many_places_of_it() -> None:
    order = [
        i for batch in planned([(3, 3)] * 20_000, budget=4, max_blocks=2_500) for i in batch.indices
    ]
    first = np.array(order[: 8 * batching.POOL_BLOCKS])  # blocks have eight pairs
    assert len(set((first // 8).tolist())) == batching.POOL_BLOCKS
    assert np.abs(np.diff(first)).min() > 0
    assert np.mean(np.abs(np.diff(first)) < 8) < 0.1, "neighbours stay together"
    assert np.ptp(first) > 15_000


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(st.lists(st.integers(4, 99), max_size=5), max_size=6), min_size=1, max_size=4
    ),
    st.randoms(),
)
def test_sentences_in_several_arrays_are_as_if_in_one(
    parts: list[list[list[int]]], random: Random
) -> None:
    sentences = [sentence for part in parts for sentence in part]
    arrays = [array for part in parts for array in Sentences.of(part).arrays]
    joined = Sentences(tuple(arrays))
    assert (len(joined), joined.num_ids) == (len(sentences), sum(map(len, sentences)))
    assert joined.lengths.tolist() == list(map(len, sentences))
    chosen = [random.randrange(len(sentences)) for _ in range(7)] if sentences else []
    assert joined.lengths_of(np.array(chosen, np.int64)).tolist() == [
        len(sentences[i]) for i in chosen
    ]
    taken = {}
    for rows, lengths, ids in joined.take(np.array(chosen, np.int64)):
        for row, part in zip(rows, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
            taken[int(row)] = part.tolist()
    assert taken == {row: sentences[i] for row, i in enumerate(chosen)}


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


def test_processes_share_a_batch_in_one_shape() -> None:
    (batch,) = planned([(4, 4)] * 7, budget=40)
    shards = [batch.shard(rank, of=3) for rank in range(3)]
    assert sorted(int(i) for shard in shards if shard for i in shard.indices) == list(range(7))
    assert {shard.shape for shard in shards if shard} == {BatchShape(3, 5, 5)}


def test_rows_left_over_hold_one_source_token_and_no_target() -> None:
    batch = collate(split_of([([5, 6], [7])]), [0], BatchShape(rows=3, src_width=4, tgt_width=2))
    assert batch.src_ids.tolist() == [[5, 6, 3, 0], [3, 0, 0, 0], [3, 0, 0, 0]]
    assert batch.tgt_ids.tolist() == [[2, 7, 3], [0, 0, 0], [0, 0, 0]]
    assert batch.tgt_places.tolist() == [0, 1]


portion_lists = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40)
@given(portion_lists, st.integers(0, 5), st.sampled_from([4, batching.MAX_BLOCKS]))
def test_an_epoch_holds_of_each_portion_what_its_share_says(
    portions: list[tuple[int, float]], seed: int, max_blocks: int
) -> None:
    whole = split_of([([5], [5])] * sum(size for size, _ in portions))
    split, rng = replace(whole, portions=tuple(portions)), np.random.default_rng(seed)
    with patch.object(batching, "MAX_BLOCKS", max_blocks):
        batches = plan_epoch(split, tokens_per_batch=40, max_width=MAX_WIDTH, rng=rng)
        counts = Counter(int(i) for batch in batches for i in batch.indices)
    block = 1
    while len(whole) > max_blocks * block:
        block *= 2
    begin = 0
    for size, share in portions:
        of_portion = [counts[i] for i in range(begin, begin + size)]
        # Blocks are drawn as wholes.
        assert sum(of_portion) == pytest.approx(max(min(size, 1), size * share), abs=block)
        assert block > 1 or sum(of_portion) == max(min(size, 1), round(size * share))
        # None comes a second time before all have come once.
        assert set(of_portion) <= {int(share), int(share) + 1}
        begin += size


def test_sentences_end_and_the_target_is_predicted_one_place_ahead() -> None:
    batch = collate(split_of([([5, 6], [7]), ([8], [9, 10, 4]), ([], [])]), [1, 0, 2])
    assert batch.src_ids.tolist() == [[8, 3, 0], [5, 6, 3], [3, 0, 0]]
    assert batch.tgt_in.tolist() == [[2, 9, 10, 4], [2, 7, 3, 0], [2, 3, 0, 0]]
    assert batch.tgt_out.tolist() == [[9, 10, 4, 3], [7, 3, 0, 0], [3, 0, 0, 0]]
