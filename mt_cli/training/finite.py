"""Whether all numbers are finite: weights with NaN or infinity are lost for good.

Knows tensors, nothing of what they are for.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether none of `tensors` holds NaN or infinity; waits for their device, once."""
    verdicts = [torch.isfinite(tensor).all() for tensor in tensors]
    return not verdicts or bool(torch.stack(verdicts).all())
