"""Selection by blocks against PyTorch's own, whatever the size of the vocabulary."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mt_cli.decoding.search import BLOCK, argmax, top_k, top_log_probs

SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7, 20 * BLOCK]
every_size = pytest.mark.parametrize("vocab_size", SIZES)
NONE = torch.empty(0, dtype=torch.long)


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
    assert torch.equal(values[:, : expected.shape[1]], expected)
    assert values.shape == (len(scores), k)


@every_size
@pytest.mark.parametrize("k", [1, 5])
def test_the_k_largest_of_different_numbers_equal_torch(vocab_size: int, k: int) -> None:
    scores = random_scores(5, vocab_size)
    expected = scores.topk(min(k, vocab_size))
    values, places = top_k(scores, k)
    assert torch.equal(values[:, :vocab_size], expected.values)
    assert torch.equal(places[:, :vocab_size], expected.indices)


def test_row_with_too_few_is_filled_up_with_minus_infinity() -> None:
    values, places = top_k(torch.tensor([[3.0, 1.0, 2.0]]), 5)
    assert values.tolist() == [[3, 2, 1, -torch.inf, -torch.inf]]
    assert places[0, :3].tolist() == [0, 2, 1]


def expected_log_probs(
    logits: Tensor, k: int, *, forbidden: Tensor, banned: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    log_probs = logits.double().log_softmax(-1)
    log_probs[:, forbidden] = -torch.inf
    log_probs[banned] = -torch.inf
    best = log_probs.topk(k)
    return best.values, best.indices


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
    expected = expected_log_probs(logits, 4, forbidden=never, banned=(rows, ids))
    values, found = top_log_probs(
        logits.clone(), 4, forbidden=never, banned=(ids.expand(num_rows, -1), is_banned)
    )
    torch.testing.assert_close(values.double(), expected[0], rtol=1e-5, atol=1e-4)
    real = expected[0].isfinite()
    assert torch.equal(found[real], expected[1][real])


@pytest.mark.parametrize("is_banned", [False, True], ids=["forbidden", "banned"])
def test_what_is_not_allowed_keeps_its_probability(is_banned: bool) -> None:
    logits = torch.tensor([[1.0, 3.0, 1.0]]).log()
    one = torch.tensor([1])
    values, ids = top_log_probs(
        logits,
        2,
        forbidden=NONE if is_banned else one,
        banned=(one.unsqueeze(0), torch.tensor([[True]])) if is_banned else None,
    )
    assert sorted(ids[0].tolist()) == [0, 2]
    assert values.exp().tolist() == [pytest.approx([0.2, 0.2])]


@pytest.mark.parametrize("forbidden", [[], [0]], ids=["largest allowed", "largest forbidden"])
def test_large_logits_do_not_overflow(forbidden: list[int]) -> None:
    logits = torch.tensor([[1e4, 0.0, -1e4]])
    values, _ = top_log_probs(logits, 1, forbidden=torch.tensor(forbidden, dtype=torch.long))
    assert values.tolist() == [[-1e4 if forbidden else 0.0]]
