"""A random order of many things, any stretch of which is computed when it is asked for.

Knows numbers only. In place of a list of all of them, which for a thousand million would fill 8 GB, it is a
Feistel cipher: number x, written as l + L·r, is mixed by turns, l by what r hashes to and r by what l does.
"""

import numpy as np
from numpy.typing import NDArray

ROUNDS = 4


class Shuffle:
    """Numbers 0 to `size` - 1 in a random order, which `rng` decides."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self._size = size
        self._num_l = np.uint64(int(np.ceil(np.sqrt(size))) or 1)
        self._num_r = np.uint64(
            -(-size // int(self._num_l)) or 1
        )  # together as many as `size`, or a few more
        self._keys = rng.integers(np.iinfo(np.uint64).max, size=(ROUNDS, 2), dtype=np.uint64)

    def stretch(self, begin: int, end: int) -> NDArray[np.int64]:
        """The numbers at places `begin` to `end` - 1 of the order."""
        numbers = self._mixed(np.arange(begin, min(end, self._size), dtype=np.uint64))
        # What falls among the few more goes on until it does not: one of each cycle's places is free for it.
        while (outside := numbers >= self._size).any():
            numbers[outside] = self._mixed(numbers[outside])
        return numbers.astype(np.int64)

    def _mixed(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Where each of `numbers` (N,) goes: another for each, below L·R."""
        r, l = np.divmod(numbers, self._num_l)  # noqa: E741
        for key_l, key_r in self._keys:
            l = (l + _hashed(r ^ key_l) % self._num_l) % self._num_l  # noqa: E741
            r = (r + _hashed(l ^ key_r) % self._num_r) % self._num_r
        mixed: NDArray[np.uint64] = l + self._num_l * r
        return mixed


def _hashed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each of `x` (N,) as bits that look random (the finaliser of SplitMix64, Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
