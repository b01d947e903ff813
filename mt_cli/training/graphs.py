"""CUDA graphs: one per shape of a batch, captured once and replayed with a single launch."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.data.batching import Batch, to_device
from mt_cli.errors import OutOfMemoryError

log = logging.getLogger(__name__)
UpdateFunction = Callable[[Sequence[Batch], float | Tensor, float | Tensor], Tensor]
"""See `Trainer._update`: batches, learning rate, one over the number of target tokens."""
MAX_GRAPHS = 64
"""Each holds memory; batches of further shapes are computed without a graph."""


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    """Where it reads."""
    output: Tensor
    """Where it writes."""


class CudaGraphs:
    """Calls an update whose work on the device depends on shapes and values of tensors alone.

    The first batch of a shape is computed as usual, which also prepares the kernels; the second is
    captured, and it and all later ones are replayed. After a capture that failed, further shapes
    are computed as usual.
    """

    def __init__(self, update: UpdateFunction, *, start_over: Callable[[], None]) -> None:
        """`start_over` clears what a failed `update` has left behind."""
        self._update = update
        self._start_over = start_over
        self._can_capture = True
        self._seen: set[tuple[torch.Size, ...]] = set()
        self._captured: dict[tuple[torch.Size, ...], _Captured] = {}

    def __call__(
        self, batches: Sequence[Batch], lr: float | Tensor, per_token: float | Tensor
    ) -> Tensor:
        """What the update returns; several batches, which are rare, are not captured."""
        if len(batches) != 1:
            return self._update(batches, lr, per_token)
        batch = batches[0].with_targets_padded()
        device = batch.src_ids.device
        numbers = to_device(torch.tensor([lr, per_token]), device)
        inputs = [*batch.tensors, numbers]
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes in self._seen and shapes not in self._captured and self._can_capture:
            self._try_to_capture(shapes, inputs)
        self._seen.add(shapes)
        captured = self._captured.get(shapes)
        if captured is None:
            return self._compute(inputs)
        for place, value in zip(captured.inputs, inputs, strict=True):
            place.copy_(value)
        captured.graph.replay()
        return captured.output.clone()  # before the next replay overwrites it

    def _compute(self, inputs: Sequence[Tensor]) -> Tensor:
        src_ids, tgt_ids, tgt_places, targets, numbers = inputs
        lr, per_token = numbers.unbind()
        batch = Batch(src_ids, tgt_ids, tgt_places, targets, has_spare_targets=True)
        return self._update([batch], lr, per_token)

    def _try_to_capture(self, shapes: tuple[torch.Size, ...], inputs: Sequence[Tensor]) -> None:
        """Capture the update on `inputs`; nothing is computed."""
        stream = torch.cuda.current_stream()
        try:
            self._captured[shapes] = self._capture(inputs)
        except (MemoryError, RuntimeError, OutOfMemoryError) as error:
            self._can_capture = False
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            log.warning(
                "no more updates are captured as CUDA graphs, so training is slower: %s", reason
            )
        else:
            self._can_capture = len(self._captured) < MAX_GRAPHS
            return
        torch.cuda.set_stream(stream)  # a capture that failed may leave its own
        self._start_over()

    def _capture(self, inputs: Sequence[Tensor]) -> _Captured:
        # Graphs run one after the other and no output outlives the next one, so all of them can
        # share one memory pool.
        pool = None
        for captured in self._captured.values():
            pool = captured.graph.pool()
            break
        graph = torch.cuda.CUDAGraph()
        places = [each.clone() for each in inputs]
        with torch.cuda.graph(graph, pool=pool):
            output = self._compute(places)
        return _Captured(graph, places, output)
