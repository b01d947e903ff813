"""CUDA graphs, with graphs that only note what was captured: which batches are computed, captured
and replayed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from tiny import split_of
from torch import Tensor

from mt_cli.data.batching import Batch, collate
from mt_cli.errors import OutOfMemoryError
from mt_cli.training import trainer as graphs
from mt_cli.training.trainer import CudaGraphs


class Update:
    """Depends on a batch, a rate and a weight; keeps the inputs and the output that a graph would
    have captured.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.notes: list[str] = []
        """The stream that was set, and what was started over."""

    def __call__(
        self, batches: Sequence[Batch], lr: float | Tensor, per_token: float | Tensor
    ) -> Tensor:
        self.calls += 1
        self.inputs = (batches[0].src_ids, lr, per_token)
        self.output = computed(*self.inputs)
        return self.output


def computed(src_ids: Tensor, lr: float | Tensor, per_token: float | Tensor) -> Tensor:
    return src_ids.sum() * lr + per_token


@pytest.fixture
def update(monkeypatch: pytest.MonkeyPatch) -> Update:
    """What is captured; a replay does it again, into the same memory."""
    update = Update()

    class Graph:
        def pool(self) -> None: ...

        def captured(self) -> None:
            self.inputs, self.output = update.inputs, update.output

        def replay(self) -> None:
            self.output.copy_(computed(*self.inputs))

    @contextmanager
    def capture(graph: Graph, pool: None) -> Iterator[None]:
        yield
        graph.captured()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "usual")
    monkeypatch.setattr(torch.cuda, "set_stream", update.notes.append)
    return update


def graphs_of(update: Update) -> CudaGraphs:
    return CudaGraphs(update, start_over=lambda: update.notes.append("start over"))


def batch_of(number: int, *, width: int = 1) -> Batch:
    return collate(split_of([([number] * width, [5])]), [0])


def test_a_shape_is_computed_then_captured_and_from_then_on_replayed(update: Update) -> None:
    replayed = graphs_of(update)
    outputs = [replayed([batch_of(number)], number, 0.5) for number in (4, 5, 6, 7)]
    alone = [computed(batch_of(number).src_ids, number, 0.5) for number in (4, 5, 6, 7)]
    assert outputs == alone  # no replay overwrites what an earlier one has given
    assert update.calls == 2


def test_shapes_have_graphs_of_their_own_and_no_more_than_there_is_room_for(
    update: Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 2)
    replayed = graphs_of(update)
    for number in (4, 5, 6):
        for width in (1, 2, 3):
            batch = batch_of(number, width=width)
            assert replayed([batch], number, 0.5) == computed(batch.src_ids, number, 0.5)
    assert update.calls == 2 + 2 + 3


def test_several_batches_are_not_captured(update: Update) -> None:
    replayed = graphs_of(update)
    for _ in range(3):
        replayed([batch_of(4), batch_of(5)], 1.0, 0.5)
    assert update.calls == 3


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("operation failed due to a previous error during capture"),
        torch.OutOfMemoryError("CUDA out of memory"),
        OutOfMemoryError("out of GPU memory"),  # in the step, where the update explains it
    ],
    ids=repr,
)
def test_after_a_capture_that_failed_updates_are_computed(
    update: Update,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replayed = graphs_of(update)
    expected = computed(batch_of(4).src_ids, 1, 0.5)
    assert [replayed([batch_of(4)], 1, 0.5) for _ in range(3)] == [expected] * 3
    assert update.calls == 2

    @contextmanager
    def fail(graph: object, pool: None) -> Iterator[None]:
        yield
        raise error

    monkeypatch.setattr(torch.cuda, "graph", fail)
    wider = batch_of(4, width=2)
    expected_of_wider = computed(wider.src_ids, 1, 0.5)
    assert [replayed([wider], 1, 0.5) for _ in range(4)] == [expected_of_wider] * 4
    assert update.calls == 2 + 5
    assert update.notes == ["usual", "start over"]
    assert len(caplog.records) == 1
    assert replayed([batch_of(4)], 1, 0.5) == expected  # by its graph
    assert update.calls == 2 + 5
