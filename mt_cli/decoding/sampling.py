"""Sampling: hypotheses drawn at random, in proportion to what the model thinks of them.

Works on token ids and an opaque state, like `search`; where the random numbers come from is the caller's.
Letters: B sentences, M of them still unfinished, R rows, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.decoding.rules import Rules
from mt_cli.decoding.search import Hyp, State, extend_until_end
from mt_cli.decoding.selection import top_k as largest


@dataclass(frozen=True)
class Sampling:
    """Which tokens are drawn from, and how boldly."""

    temperature: float = 1.0
    """What logits are divided by: below 1 the likely become likelier, above 1 less so."""
    top_k: int = 0
    """Only so many of the likeliest tokens are drawn from (Fan et al. 2018); 0 is all."""
    top_p: float = 1.0
    """Only the fewest tokens that hold this probability are drawn from (Holtzman et al. 2020)."""

    def __str__(self) -> str:
        return f"-t{self.temperature:g}-k{self.top_k}-p{self.top_p:g}"

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"a temperature is above 0 and finite, found {self.temperature}")
        if self.top_k < 0 or not 0 <= self.top_p <= 1:
            raise ValueError(f"top_k is 0 or more and top_p from 0 to 1, found {self.top_k} and {self.top_p}")


def sample_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    draws: Tensor,
    max_lens: Sequence[int],
    sampling: Sampling,
    rules: Rules,
    *,
    device: torch.device | None = None,
) -> list[Hyp]:
    """A random hypothesis of each sentence, drawn token by token; see `extend_until_end`.

    `step` gives logits (M, 1, V), which are overwritten. `draws` (B, longest limit) are uniform in [0, 1),
    one for every token: the same draws give a sentence the same hypothesis, whatever else is in the batch.
    Scores are log-probabilities among the tokens that are allowed, before `sampling` narrows them.
    """
    log_probs = torch.zeros(len(max_lens), device=device)

    def choose(logits: Tensor, so_far: Tensor, rows: Tensor) -> Tensor:
        logits = rules.hide(logits, so_far)
        ids = draw(logits, draws[rows, so_far.shape[1]], sampling)
        log_probs[rows] += logits.float().log_softmax(-1).gather(1, ids.unsqueeze(1)).squeeze(1)
        return ids

    hyps = extend_until_end(step, state, max_lens, choose, rules, device=device)
    return [Hyp(ids, each, each) for ids, each in zip(hyps, log_probs.tolist(), strict=True)]


def draw(logits: Tensor, draws: Tensor, sampling: Sampling) -> Tensor:
    """The id of each row of `logits` (R, V) where the running probability, likeliest first, passes its draw.

    `draws` (R,) are in [0, 1). Returns (R,).
    """
    logits = logits.float() / sampling.temperature
    if sampling.top_k == 0 and sampling.top_p == 1:  # the order does not matter, and to sort is slow
        return _pass(logits.softmax(-1), draws).squeeze(1)
    k = min(sampling.top_k or logits.shape[1], logits.shape[1])
    values, ids = largest(logits, k)  # both (R, k)
    probs = values.softmax(-1)
    before = probs.cumsum(-1) - probs  # (R, k): what likelier tokens hold
    too_far = before >= sampling.top_p
    too_far[:, 0] = False  # the likeliest may always be drawn
    return ids.gather(1, _pass(probs.masked_fill(too_far, 0.0), draws)).squeeze(1)


def _pass(probs: Tensor, draws: Tensor) -> Tensor:
    """The first place (R, 1) where the running sum of `probs` (R, V) exceeds its draw (R,) of the whole."""
    reached = probs.cumsum(-1)
    total = reached[:, -1:]
    # Rounding must not make a draw of the whole, which nothing exceeds.
    target = torch.minimum(draws.unsqueeze(1) * total, torch.nextafter(total, torch.zeros_like(total)))
    return (reached <= target).sum(-1, keepdim=True)
