"""The ladder of sizes: sizes are rounded up to a few values, because kernels are built for shapes.

On a CPU, oneDNN builds a kernel for each shape of a bf16 product and keeps a thousand of them, at about a
megabyte each. CUDA graphs need few shapes too.
"""

import numpy as np
from numpy.typing import NDArray


def rungs(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each of `sizes` (N,), from 1, rounded up to a rung: (N,).

    The ladder has four rungs to each doubling: 1, 2 … 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 …
    """
    step = _step_to(sizes)
    return -(-sizes // step) * step


def rung(size: int) -> int:
    """`size`, from 1, rounded up to a rung."""
    return int(rungs(np.array([size]))[0])


def rungs_below(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rung below each of the rungs `sizes` (N,); below the first, 0: (N,)."""
    return sizes - _step_to(sizes)


def _step_to(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distance between the rung at or above each of `sizes` (N,) and the one below it: (N,)."""
    digits = np.frexp(sizes - 1)[1]  # binary digits
    step: NDArray[np.int64] = np.left_shift(np.int64(1), np.maximum(digits - 3, 0))
    return step
