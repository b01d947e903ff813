"""The batcher with a model that notes what it is given: what is translated together."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from mt_cli.serving import batcher as module
from mt_cli.serving.batcher import Batcher, BusyError, GoneError, Wanted


async def stays() -> bool:
    return False


class Model:
    """Writes each line in capitals; works on the first batch until `go` is set."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, lines: list[str], wanted: Wanted) -> list[list[str]]:
        self.batches.append(lines)
        assert self.go.wait(20)
        if "broken" in lines:
            raise ValueError("broken")
        return [[line.upper()] * wanted.num_choices for line in lines]


def run(model: Model, act: Callable[[Batcher[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        batcher = Batcher(model)
        task = asyncio.create_task(batcher.run())
        await asyncio.wait_for(act(batcher), 20)
        task.cancel()

    asyncio.run(main())


def test_requests_that_come_together_are_one_batch() -> None:
    model = Model()

    async def act(batcher: Batcher[str]) -> None:
        requests = [batcher.translate([f"a{i}", f"b{i}"], is_gone=stays) for i in range(20)]
        found = await asyncio.gather(*requests)
        assert found == [[[f"A{i}"], [f"B{i}"]] for i in range(20)]

    run(model, act)
    assert len(model.batches) == 1


def test_requests_for_other_numbers_of_choices_are_other_batches() -> None:
    model = Model()

    async def act(batcher: Batcher[str]) -> None:
        one, three = await asyncio.gather(
            batcher.translate(["a"], is_gone=stays),
            batcher.translate(["b"], wanted=Wanted(3), is_gone=stays),
        )
        assert (one, three) == ([["A"]], [["B"] * 3])

    run(model, act)
    assert model.batches == [["a"], ["b"]]


def test_long_requests_let_others_between_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_LINES", 4)
    monkeypatch.setattr(module, "LINES_OF_REQUEST", 3)
    model = Model()

    async def act(batcher: Batcher[str]) -> None:
        long = [f"l{i}" for i in range(9)]
        short = [batcher.translate([f"s{i}"], is_gone=stays) for i in range(3)]
        found = await asyncio.gather(batcher.translate(long, is_gone=stays), *short)
        assert found == [[[line.upper()] for line in long], [["S0"]], [["S1"]], [["S2"]]]

    run(model, act)
    assert max(map(len, model.batches)) <= 4
    assert [each for batch in model.batches for each in batch].index("s2") < 9


def test_too_many_lines_are_refused_and_room_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    model = Model()

    async def act(batcher: Batcher[str]) -> None:
        first = asyncio.create_task(batcher.translate(["a", "b"], is_gone=stays))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await batcher.translate(["c", "d"], is_gone=stays)
        assert await batcher.translate(["c"], is_gone=stays) == [["C"]]
        await first
        assert await batcher.translate(["c", "d"], is_gone=stays) == [["C"], ["D"]]

    run(model, act)


def test_who_has_gone_is_not_translated_for() -> None:
    model = Model()
    model.go.clear()
    has_gone = False

    async def is_gone() -> bool:
        return has_gone

    async def act(batcher: Batcher[str]) -> None:
        nonlocal has_gone
        first = asyncio.create_task(batcher.translate(["a"], is_gone=stays))
        while not model.batches:
            await asyncio.sleep(0.001)
        gone = asyncio.create_task(batcher.translate(["b"], is_gone=is_gone))
        cancelled = asyncio.create_task(batcher.translate(["c"], is_gone=stays))
        await asyncio.sleep(0)
        has_gone = True
        cancelled.cancel()
        model.go.set()
        assert await first == [["A"]]
        with pytest.raises(GoneError):
            await gone
        assert await batcher.translate(["d"], is_gone=stays) == [["D"]]

    run(model, act)
    assert model.batches == [["a"], ["d"]]


def test_a_model_that_fails_fails_its_batch_alone() -> None:
    model = Model()

    async def act(batcher: Batcher[str]) -> None:
        with pytest.raises(ValueError, match="broken"):
            await batcher.translate(["broken"], is_gone=stays)
        assert await batcher.translate(["a"], is_gone=stays) == [["A"]]

    run(model, act)


def test_calls_come_between_batches() -> None:
    async def act(batcher: Batcher[str]) -> None:
        assert await batcher.call(lambda: 7) == 7

    run(Model(), act)
