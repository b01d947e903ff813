"""Work of a GPU as one CUDA graph for each shape, which the host starts at once, not kernel by
kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Shapes = tuple[torch.Size, ...]
MOST = 64
"""Graphs that are kept, for each holds memory; inputs of further shapes are computed as usual."""


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    """Where it reads."""
    output: Tensor
    """Where it writes."""


class Graphs:
    """Calls a function of tensors, whose work on the device depends on their shapes and values
    alone.

    Inputs of new shapes are computed as usual, which also prepares the kernels. Those that come
    again are captured, and from then on replayed.
    """

    def __init__(self, compute: Callable[..., Tensor]) -> None:
        self._compute = compute
        self._seen: set[Shapes] = set()
        self._captured: dict[Shapes, _Captured] = {}

    def __call__(self, *inputs: Tensor) -> Tensor:
        """What the function gives for `inputs`."""
        shapes = tuple(each.shape for each in inputs)
        is_full = shapes not in self._captured and len(self._captured) == MOST
        if is_full or shapes not in self._seen:
            self._seen.add(shapes)
            return self._compute(*inputs)
        if shapes not in self._captured:
            self._captured[shapes] = self._capture(inputs)
        captured = self._captured[shapes]
        for own, given in zip(captured.inputs, inputs, strict=True):
            own.copy_(given)
        captured.graph.replay()
        return captured.output.clone()  # before the next one overwrites it

    def _capture(self, inputs: tuple[Tensor, ...]) -> _Captured:
        # One after the other runs, and no output outlives the next: all can use the same memory.
        pool = next(iter(self._captured.values())).graph.pool() if self._captured else None
        graph, own = torch.cuda.CUDAGraph(), [each.clone() for each in inputs]
        with torch.cuda.graph(graph, pool=pool):
            output = self._compute(*own)
        return _Captured(graph, own, output)
