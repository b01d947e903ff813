"""The order of pairs in an epoch: permutations that take no memory for the corpus.

Letters: N numbers.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NUM_ROUNDS = 4


class Permutation:
    """Numbers 0 to `size` - 1 in a random order (Black and Rogaway 2002, section 5)."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self._size = size
        # The product of both is `size` or a little more.
        self._num_left = np.uint64(int(np.ceil(np.sqrt(size))) or 1)
        self._num_right = np.uint64(-(-size // int(self._num_left)) or 1)
        self._keys = rng.integers(np.iinfo(np.uint64).max, size=(NUM_ROUNDS, 2), dtype=np.uint64)

    def __len__(self) -> int:
        return self._size

    def slice(self, begin: int, end: int) -> NDArray[np.int64]:
        """The numbers at places `begin` to `end` - 1 of the order."""
        return self.at(np.arange(begin, min(end, self._size)))

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers at `places` (N,) of the order: (N,)."""
        numbers = self._mixed(places.astype(np.uint64))
        # Cycle walking: numbers >= size are mixed again. Mixing is a bijection, so none collide.
        outside = numbers >= self._size
        while outside.any():
            numbers[outside] = self._mixed(numbers[outside])
            outside = numbers >= self._size
        return numbers.astype(np.int64)

    def _mixed(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Mix each of `numbers` (N,) once: (N,). Different numbers stay different."""
        right, left = np.divmod(numbers, self._num_left)
        for key_left, key_right in self._keys:
            left = (left + _hashed(right ^ key_left) % self._num_left) % self._num_left
            right = (right + _hashed(left ^ key_right) % self._num_right) % self._num_right
        mixed: NDArray[np.uint64] = left + self._num_left * right
        return mixed


class WeightedPermutation:
    """Numbers of consecutive ranges in a random order, each repeated by its range's share.

    If a share is not a whole number, `rng` decides which numbers come once more than the rest. Each
    range that is not empty gives at least one number.
    """

    def __init__(
        self, sizes: Sequence[int], shares: Sequence[float], rng: np.random.Generator
    ) -> None:
        counts = [
            max(min(size, 1), round(size * share))
            for size, share in zip(sizes, shares, strict=True)
        ]
        self._all = Permutation(sum(counts), rng)
        self._ranges = [Permutation(size, rng) for size in sizes]
        self._begins = np.cumsum([0, *sizes])
        self._drawn = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return len(self._all)

    def slice(self, begin: int, end: int) -> NDArray[np.int64]:
        """The numbers at places `begin` to `end` - 1 of the order."""
        numbers = self._all.slice(begin, end)
        of_range = np.searchsorted(self._drawn, numbers, side="right") - 1
        for i, own in enumerate(self._ranges):
            here = of_range == i
            places = (numbers[here] - self._drawn[i]) % max(1, len(own))
            numbers[here] = self._begins[i] + own.at(places)
        return numbers


def _hashed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each of `x` (N,) to random-looking bits (SplitMix64's finalizer, Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
