"""Finds the largest of many scores: the part of a search that touches the whole vocabulary.

Exact. On a CPU, PyTorch finds the place of a maximum by comparing entries one by one. NumPy uses vector
instructions, and so does PyTorch for the value alone: where several are wanted, the maximum of each block of
entries is computed first, and only the best blocks are searched, in a third of the time of `Tensor.topk`.
Letters: R rows, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 64
"""Entries of a row that are compared at a time."""


def argmax(scores: Tensor) -> Tensor:
    """The place (R,) of the largest entry of each row of `scores` (R, V), the first of equals."""
    if scores.device.type != "cpu":
        return scores.argmax(-1)
    return torch.from_numpy(scores.detach().float().numpy().argmax(-1))


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest entries of each row of `scores` (R, V), sorted, and their places: both (R, k).

    If a row has fewer entries, `-inf` fills up.
    """
    V = scores.shape[1]
    if k == 1:  # the first of equals, as `argmax`
        places = argmax(scores).unsqueeze(1)
        return scores.gather(1, places), places
    if 2 * k * BLOCK > V or scores.is_cuda:  # blocks would not help
        values, places = scores.topk(min(k, V))
        missing = (0, k - values.shape[1])
        return F.pad(values, missing, value=-torch.inf), F.pad(places, missing)
    blocks = _block_maxima(scores).topk(k, sorted=False).indices  # (R, k): one of the k largest is in each
    places, entries = _open(blocks, scores)
    values, order = entries.topk(k)
    return values, places.gather(1, order)


def top_log_probs(
    logits: Tensor, k: int, *, forbidden: Tensor, banned: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the `k` likeliest of each row of `logits` (R, V), and their ids: both (R, k).

    Two kinds of ids are never returned, but keep their probability: those in `forbidden` (F,) for every row,
    and those that `banned` names by row (P,) and id (P,). Overwrites `logits`.
    """
    if len(banned[0]) > 0:
        normalizer = logits.logsumexp(-1, keepdim=True)
        logits[banned] = -torch.inf
        logits.index_fill_(1, forbidden, -torch.inf)
        best, ids = top_k(logits, k)
        return best - normalizer, ids
    passed_over = logits[:, forbidden]  # (R, F)
    logits.index_fill_(1, forbidden, -torch.inf)
    best, ids = top_k(logits, k)
    peak = torch.cat([best[:, :1], passed_over], dim=-1).amax(-1, keepdim=True)  # so that exp cannot overflow
    total = logits.sub_(peak).exp_().sum(-1, keepdim=True) + (passed_over - peak).exp_().sum(-1, keepdim=True)
    return best - (peak + total.log()), ids


def _block_maxima(scores: Tensor) -> Tensor:
    """The largest entry of each block of `scores` (R, V), the last of which may be shorter: (R, blocks)."""
    R, V = scores.shape
    whole = V - V % BLOCK
    maxima = scores[:, :whole].view(R, -1, BLOCK).amax(-1)
    return maxima if whole == V else torch.cat([maxima, scores[:, whole:].amax(-1, keepdim=True)], dim=-1)


def _open(blocks: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Places and entries of `scores` (R, V) in `blocks` (R, k), both (R, k·BLOCK); `-inf` beyond the last."""
    V = scores.shape[1]
    within = torch.arange(BLOCK, device=scores.device)
    places = (blocks.unsqueeze(-1) * BLOCK + within).flatten(1)
    if V % BLOCK == 0:
        return places, scores.gather(1, places)
    beyond = places >= V
    places = places.clamp(max=V - 1)
    return places, scores.gather(1, places).masked_fill(beyond, -torch.inf)
