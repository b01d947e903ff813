"""What a process does when others are missing; `cli/test_torchrun` trains with several."""

import socket
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch

from mt_cli.errors import ResourceError
from mt_cli.training import distributed
from mt_cli.training.distributed import World, joined_world

LEFT_ALONE = World(rank=0, size=2)
"""The first of two whose group is gone."""


def test_one_process_is_a_world_of_its_own() -> None:
    with joined_world() as world:
        tensor = torch.ones(2)
        world.broadcast_([tensor])
        world.all_reduce([tensor])
        assert world.are_equal([tensor])
        assert world == World(0, 1)
        assert world.is_first
        assert tensor.tolist() == [1, 1]
        assert world.broadcast_bool(True)
        assert not world.broadcast_bool(False)
        assert world.broadcast_int(7) == 7


def test_a_process_that_never_comes_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    monkeypatch.setattr(distributed, "RENDEZVOUS_TIMEOUT", timedelta(seconds=0.2))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": "0"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ResourceError), joined_world():
        pass


@pytest.mark.parametrize(
    "act",
    [
        lambda: LEFT_ALONE.all_reduce([torch.ones(1)]),
        lambda: LEFT_ALONE.broadcast_bool(True),
        lambda: LEFT_ALONE.after_first(lambda: 1, lambda: 2),
    ],
    ids=["all_reduce", "broadcast", "after_first"],
)
def test_others_that_are_gone_are_told_of(act: Callable[[], object]) -> None:
    with pytest.raises(ResourceError, match="--resume"):
        act()
