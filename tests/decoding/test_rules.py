"""No sequence of n tokens twice: what is banned, against a look back over the whole hypothesis."""

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.decoding.search import Rules, mask_
from mt_cli.text import BOS_ID, EOS_ID

hyps_of_one_length = st.integers(0, 9).flatmap(
    lambda length: st.lists(
        st.lists(st.integers(0, 3), min_size=length, max_size=length), min_size=1, max_size=4
    )
)


def ngrams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(ids[begin : begin + n]) for begin in range(len(ids) - n + 1)]


def would_repeat(ids: Sequence[int], new: int, n: int) -> bool:
    *before, last = ngrams([*ids, new], n) or [()]
    return last in before


@settings(max_examples=60)
@given(hyps_of_one_length, st.integers(1, 5))
def test_banned_are_exactly_those_that_would_repeat(hyps: list[list[int]], n: int) -> None:
    logits = torch.zeros(len(hyps), 4)
    rules = Rules(BOS_ID, EOS_ID, no_repeat_ngram=n)
    mask_(logits, rules.repeated_ids(torch.tensor(hyps, dtype=torch.long).view(len(hyps), -1)))
    expected = [[would_repeat(hyp, i, n) for i in range(4)] for hyp in hyps]
    assert logits.isinf().tolist() == expected
