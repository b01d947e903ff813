"""Sampling: hypotheses drawn at random from the model's distribution.

Works on token ids and an opaque state, like `search`; the caller supplies the random numbers.
Letters: B sentences, M of them still unfinished, R rows, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mt_cli.decoding import Hyp, Sampling, penalty
from mt_cli.decoding.rules import Rules
from mt_cli.decoding.search import State, extend_until_end
from mt_cli.decoding.search import top_k as largest


def sample_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    draws: Tensor,
    max_lens: Tensor,
    sampling: Sampling,
    rules: Rules,
    *,
    length_penalty: float = 0.0,
) -> list[Hyp]:
    """A random hypothesis of each sentence, drawn token by token; see `extend_until_end`.

    `step` gives logits (M, 1, V), which are overwritten. `draws` (B, longest limit) are uniform in
    [0, 1), one for every token. A sentence's hypothesis depends on its own draws, not on the rest
    of the batch. Log-probabilities are the model's, as in `beam_search`: neither `rules` nor
    `sampling` change them. `length_penalty` is the alpha of `penalty`, by which scores are divided.
    """
    device = max_lens.device
    log_probs = torch.zeros(len(max_lens), device=device)
    is_live = torch.ones(len(max_lens), dtype=torch.bool, device=device)
    hide = rules.hiding(device)

    def choose(logits: Tensor, so_far: Tensor, rows: Tensor) -> Tensor:
        length = so_far.shape[1]
        logits = logits.float()
        normalizer = logits.logsumexp(-1)
        logits = hide(logits, so_far)
        ids = sample_ids(logits, draws[rows, length], sampling)
        added = logits.gather(1, ids.unsqueeze(1)).squeeze(1) - normalizer
        log_probs[rows] += added.where(is_live[rows] & (length < max_lens[rows]), 0.0)
        is_live[rows] &= ids != rules.eos_id
        return ids

    hyps = extend_until_end(step, state, max_lens, choose, rules)
    return [
        Hyp(ids, log_prob / float(penalty(min(len(ids) + 1, limit), length_penalty)), log_prob)
        for ids, log_prob, limit in zip(hyps, log_probs.tolist(), max_lens.tolist(), strict=True)
    ]


def sample_ids(logits: Tensor, draws: Tensor, sampling: Sampling) -> Tensor:
    """Draw an id from each row of `logits` (R, V): the first whose cumulative probability exceeds
    the draw.

    `draws` (R,) are in [0, 1). Returns (R,). The ids are ordered by probability if `sampling` has a
    limit.
    """
    logits = logits.float() / sampling.temperature
    if sampling.top_k == 0 and sampling.top_p == 1:  # no order is needed, and sorting is slow
        return _pass(logits.softmax(-1), draws).squeeze(1)
    k = min(sampling.top_k or logits.shape[1], logits.shape[1])
    values, ids = largest(logits, k)  # both (R, k)
    probs = values.softmax(-1)
    before = probs.cumsum(-1) - probs  # (R, k): probability of all likelier tokens
    too_far = before >= sampling.top_p
    too_far[:, 0] = False  # the likeliest may always be drawn
    return ids.gather(1, _pass(probs.masked_fill(too_far, 0.0), draws)).squeeze(1)


def _pass(probs: Tensor, draws: Tensor) -> Tensor:
    """First place (R, 1) where the running sum of `probs` (R, V) exceeds `draws` (R,) times the
    total.
    """
    reached = probs.cumsum(-1)
    total = reached[:, -1:]
    # Rounding must not raise a target to the total, which no running sum exceeds.
    target = torch.minimum(
        draws.unsqueeze(1) * total, torch.nextafter(total, torch.zeros_like(total))
    )
    return (reached <= target).sum(-1, keepdim=True)
