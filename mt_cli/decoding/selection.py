"""Selection of the largest: the part of a search that touches the whole vocabulary, exact.

Letters: R rows, V vocabulary, F forbidden ids.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mt_cli.decoding.rules import Banned, mask_

BLOCK = 64
"""Entries of a row that are compared at a time."""


def argmax(scores: Tensor) -> Tensor:
    """The place (R,) of the largest entry of each row of `scores` (R, V), the first of equals."""
    if scores.device.type != "cpu":
        return scores.argmax(-1)
    # NumPy's uses SIMD and takes a third of the time of PyTorch's.
    return torch.from_numpy(scores.detach().float().numpy().argmax(-1))


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest entries of each row of `scores` (R, V), sorted, and their places.

    Both are (R, k); if a row has fewer entries, they are filled with `-inf`.
    """
    V = scores.shape[1]
    if k == 1:  # the first of equals, as `argmax`
        places = argmax(scores).unsqueeze(1)
        return scores.gather(1, places), places
    if 2 * k * BLOCK > V or scores.is_cuda:  # blocks would not help
        values, places = scores.topk(min(k, V))
        if k > V:
            values = F.pad(values, (0, k - V), value=-torch.inf)
            places = F.pad(places, (0, k - V))
        return values, places
    # Each of the k largest is in one of the k blocks with the largest maxima.
    blocks = _block_maxima(scores).topk(k, sorted=False).indices  # (R, k)
    places, entries = _entries_of_blocks(blocks, scores)
    values, order = entries.topk(k)
    return values, places.gather(1, order)


def top_log_probs(
    logits: Tensor, k: int, *, forbidden: Tensor, banned: Banned | None = None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the `k` likeliest of each row of `logits` (R, V), and their ids.

    Both are (R, k). Two kinds of ids are never returned, but keep their probability: those in
    `forbidden` (F,) for every row, and what is `banned`. May overwrite `logits`.
    """
    if banned is not None or logits.is_cuda:
        log_probs = logits.log_softmax(-1)
        mask_(log_probs, banned)
        log_probs.index_fill_(1, forbidden, -torch.inf)
        return top_k(log_probs, k)
    passed_over = logits[:, forbidden]  # (R, F)
    logits.index_fill_(1, forbidden, -torch.inf)
    best, ids = top_k(logits, k)
    # The peak is subtracted so that exp cannot overflow.
    peak = torch.cat([best[:, :1], passed_over], dim=-1).amax(-1, keepdim=True)
    total = logits.sub_(peak).exp_().sum(-1, keepdim=True)
    total = total + (passed_over - peak).exp_().sum(-1, keepdim=True)
    return best - (peak + total.log()), ids


def _block_maxima(scores: Tensor) -> Tensor:
    """The largest entry of each block of `scores` (R, V), (R, blocks); the last may be shorter."""
    R, V = scores.shape
    whole = V - V % BLOCK
    maxima = scores[:, :whole].view(R, -1, BLOCK).amax(-1)
    if whole == V:
        return maxima
    return torch.cat([maxima, scores[:, whole:].amax(-1, keepdim=True)], dim=-1)


def _entries_of_blocks(blocks: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Places and entries of `scores` (R, V) in `blocks` (R, k), both (R, k·BLOCK).

    Entries beyond the last are `-inf`.
    """
    V = scores.shape[1]
    within = torch.arange(BLOCK, device=scores.device)
    places = (blocks.unsqueeze(-1) * BLOCK + within).flatten(1)
    if V % BLOCK == 0:
        return places, scores.gather(1, places)
    beyond = places >= V
    places = places.clamp(max=V - 1)
    return places, scores.gather(1, places).masked_fill(beyond, -torch.inf)
