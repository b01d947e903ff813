"""The batcher with a model that notes what it is given: what is translated together."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from starlette.exceptions import HTTPException

from mt_cli.serving import batcher as module
from mt_cli.serving.batcher import Batcher, Wanted
from mt_cli.translation.result import Translation


async def stays() -> bool:
    return False


class Model:
    """Writes each line in capitals; works on the first batch until `go` is set."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, lines: list[str], wanted: Wanted) -> list[list[Translation]]:
        self.batches.append(lines)
        assert self.go.wait(20)
        if "broken" in lines:
            raise ValueError("broken")
        return [[Translation(line.upper(), 0.0)] * wanted.num_choices for line in lines]


@pytest.fixture
def model() -> Model:
    return Model()


def run(model: Model, act: Callable[[Batcher], Awaitable[None]]) -> None:
    async def main() -> None:
        batcher = Batcher(model)
        task = asyncio.create_task(batcher.run())
        await asyncio.wait_for(act(batcher), 20)
        task.cancel()

    asyncio.run(main())


ONE_TEXT = Wanted()


async def ask(
    batcher: Batcher,
    *lines: str,
    wanted: Wanted = ONE_TEXT,
    is_gone: Callable[[], Awaitable[bool]] = stays,
) -> list[str]:
    """The texts that a request gets, all of a line joined."""
    found = await batcher.translate([*lines], wanted, is_gone=is_gone)
    return [" ".join(each.text for each in of_line) for of_line in found]


def test_requests_that_come_together_are_one_batch(model: Model) -> None:
    async def act(batcher: Batcher) -> None:
        found = await asyncio.gather(*(ask(batcher, f"a{i}", f"b{i}") for i in range(20)))
        assert found == [[f"A{i}", f"B{i}"] for i in range(20)]

    run(model, act)
    assert len(model.batches) == 1


def test_requests_for_other_numbers_of_choices_are_other_batches(model: Model) -> None:
    async def act(batcher: Batcher) -> None:
        requests = [ask(batcher, "a"), ask(batcher, "b", wanted=Wanted(3, is_detailed=False))]
        assert [*await asyncio.gather(*requests)] == [["A"], ["B B B"]]

    run(model, act)
    assert model.batches == [["a"], ["b"]]


def test_long_requests_let_others_between_their_parts(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_LINES", 4)
    monkeypatch.setattr(module, "LINES_OF_REQUEST", 3)

    async def act(batcher: Batcher) -> None:
        long = [f"l{i}" for i in range(9)]
        requests = [ask(batcher, *long), *(ask(batcher, f"s{i}") for i in range(3))]
        found = await asyncio.gather(*requests)
        assert found == [[line.upper() for line in long], ["S0"], ["S1"], ["S2"]]

    run(model, act)
    assert max(map(len, model.batches)) <= 4
    assert [each for batch in model.batches for each in batch].index("s2") < 9


def test_too_many_lines_are_refused_and_room_comes_back(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)

    async def act(batcher: Batcher) -> None:
        first = asyncio.create_task(ask(batcher, "a", "b"))
        await asyncio.sleep(0)
        with pytest.raises(HTTPException) as refused:
            await ask(batcher, "c", "d")
        assert refused.value.status_code == 503
        assert "Retry-After" in (refused.value.headers or {})
        assert await ask(batcher, "c") == ["C"]
        await first
        assert await ask(batcher, "c", "d") == ["C", "D"]

    run(model, act)


def test_who_has_gone_is_not_translated_for(model: Model) -> None:
    model.go.clear()

    async def is_gone() -> bool:
        return model.go.is_set()

    async def act(batcher: Batcher) -> None:
        first = asyncio.create_task(ask(batcher, "a"))
        while not model.batches:
            await asyncio.sleep(0.001)
        gone = asyncio.create_task(ask(batcher, "b", is_gone=is_gone))
        cancelled = asyncio.create_task(ask(batcher, "c"))
        await asyncio.sleep(0)
        cancelled.cancel()
        model.go.set()
        assert await first == ["A"]
        with pytest.raises(HTTPException):
            await gone
        assert await ask(batcher, "d") == ["D"]

    run(model, act)
    assert model.batches == [["a"], ["d"]]


def test_a_model_that_fails_fails_its_batch_alone(model: Model) -> None:
    async def act(batcher: Batcher) -> None:
        with pytest.raises(ValueError, match="broken"):
            await ask(batcher, "broken")
        assert await ask(batcher, "a") == ["A"]

    run(model, act)
