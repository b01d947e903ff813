"""CUDA graphs, with graphs that only note what was captured: which inputs are computed, captured
and replayed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from mt_cli.training import graphs
from mt_cli.training.graphs import Graphs


class Work:
    """Doubles its input; the latest input and output are what a graph would have captured."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, given: Tensor) -> Tensor:
        self.calls += 1
        self.given = given
        self.output = 2 * given
        return self.output


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """What is captured; a replay does it again, into the same memory."""
    work = Work()

    class Graph:
        def pool(self) -> None: ...

        def captured(self) -> None:
            self.given, self.output = work.given, work.output

        def replay(self) -> None:
            self.output.copy_(2 * self.given)

    @contextmanager
    def capture(graph: Graph, pool: None) -> Iterator[None]:
        yield
        graph.captured()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    return work


def test_a_shape_is_computed_then_captured_and_from_then_on_replayed(work: Work) -> None:
    replayed = Graphs(work)
    outputs = [replayed(torch.full((3,), number)) for number in (1.0, 2.0, 3.0, 4.0)]
    assert [output[0].item() for output in outputs] == [2, 4, 6, 8]
    assert work.calls == 2


def test_shapes_have_graphs_of_their_own_and_no_more_than_there_is_room_for(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MOST", 2)
    replayed = Graphs(work)
    for number in (1.0, 2.0, 3.0):
        for size in (1, 2, 3):
            output = replayed(torch.full((size,), number))
            assert output.tolist() == [2 * number] * size
    assert work.calls == 2 + 2 + 3
