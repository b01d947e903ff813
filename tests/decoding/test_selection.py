"""Selection by blocks against PyTorch's own, whatever the size of the vocabulary."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from mt_cli.decoding.search import BLOCK, argmax, top_k, top_log_probs


def random_scores(num_rows: int, vocab_size: int, *, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed))


@st.composite
def rows_of_scores(draw: st.DrawFn) -> Tensor:
    """Some rows of any width, among whose entries there may be equals and minus infinity."""
    num_rows, vocab_size = draw(st.integers(1, 4)), draw(st.integers(1, 12 * BLOCK))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    highest = draw(st.sampled_from([1, 2, 10, 1_000_000]))
    scores = torch.randint(0, highest, (num_rows, vocab_size), generator=generator).float()
    share_hidden = draw(st.sampled_from([0, 0.5, 0.99]))
    is_hidden = torch.rand(num_rows, vocab_size, generator=generator) < share_hidden
    return scores.masked_fill(is_hidden, -torch.inf)


@settings(max_examples=40)
@given(rows_of_scores())
def test_argmax_is_the_first_of_the_largest(scores: Tensor) -> None:
    rows = scores.tolist()
    assert argmax(scores).tolist() == [row.index(max(row)) for row in rows]


@settings(max_examples=40)
@given(rows_of_scores(), st.integers(1, 8))
def test_the_k_largest_equal_those_of_torch(scores: Tensor, k: int) -> None:
    values, _ = top_k(scores, k)
    expected = scores.sort(dim=-1, descending=True).values[:, :k]
    missing = k - expected.shape[1]
    assert torch.equal(values, F.pad(expected, (0, missing), value=-torch.inf))


@settings(max_examples=60)
@given(
    st.integers(1, 4),
    st.integers(12, 8 * BLOCK),
    st.integers(0, 1000),
    st.lists(st.integers(0, 11), max_size=3, unique=True),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 11)), max_size=4),
    st.sampled_from([0.1, 1.0, 200.0]),
)
def test_log_probabilities_are_those_of_log_softmax(
    num_rows: int,
    vocab_size: int,
    seed: int,
    forbidden: list[int],
    banned: list[tuple[int, int]],
    std: float,
) -> None:
    logits = random_scores(num_rows, vocab_size, seed=seed) * std
    pairs = [(row, i) for row, i in banned if row < num_rows]
    rows, ids = torch.tensor(pairs, dtype=torch.long).view(-1, 2).unbind(1)
    is_banned = torch.arange(num_rows).unsqueeze(1) == rows  # (R, P)
    never = torch.tensor(forbidden, dtype=torch.long)
    log_probs = logits.double().log_softmax(-1)
    log_probs[:, never] = -torch.inf
    log_probs[rows, ids] = -torch.inf
    expected = log_probs.topk(4)
    pairs_of_rows = (ids.expand(num_rows, -1), is_banned) if pairs else None
    values, found = top_log_probs(logits.clone(), 4, forbidden=never, banned=pairs_of_rows)
    torch.testing.assert_close(values.double(), expected.values, rtol=1e-5, atol=1e-4)
    real = expected.values.isfinite()
    assert torch.equal(found[real], expected.indices[real])


@pytest.mark.parametrize("forbidden", [[], [0]], ids=["largest allowed", "largest forbidden"])
def test_large_logits_do_not_overflow(forbidden: list[int]) -> None:
    logits = torch.tensor([[1e4, 0.0, -1e4]])
    values, _ = top_log_probs(logits, 1, forbidden=torch.tensor(forbidden, dtype=torch.long))
    assert values.tolist() == [[-1e4 if forbidden else 0.0]]
