"""The ladder of sizes: what comes in any size is rounded up, so that few sizes come.

Kernels are made for shapes. On a CPU, oneDNN builds one for each shape of a bf16 product and keeps a
thousand, at about a megabyte each; on a GPU, a CUDA graph is recorded for one.
"""

import numpy as np
from numpy.typing import NDArray


def rungs(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each of `sizes` (N,), from 1, rounded up to a rung: (N,).

    The ladder has four rungs to each doubling: 1, 2 … 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 …
    """
    digits = np.frexp(sizes - 1)[1]  # in binary
    step = np.left_shift(np.int64(1), np.maximum(digits - 3, 0))
    rounded: NDArray[np.int64] = -(-sizes // step) * step
    return rounded


def rung(size: int) -> int:
    """The one number `size`, from 1, rounded up to a rung."""
    return int(rungs(np.array([size]))[0])
