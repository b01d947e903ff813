"""What a process does when the others do not come, or go; `test_several_processes` trains with
several.
"""

import socket
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch

from mt_cli.errors import ResourceError
from mt_cli.training import distributed as world
from mt_cli.training.distributed import World, joined_world

LEFT_ALONE = World(rank=0, size=2)
"""The first of two whose group is gone."""


def test_one_process_is_a_world_of_its_own() -> None:
    with joined_world() as world:
        tensor = torch.ones(2)
        world.share([tensor])
        world.add_up([tensor])
        assert world.are_alike([tensor])
        assert world == World(0, 1)
        assert world.is_first
        assert tensor.tolist() == [1, 1]
        assert world.agree(goes_on=True)
        assert not world.agree(goes_on=False)


def test_a_process_that_never_comes_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    monkeypatch.setattr(world, "TIME_TO_MEET", timedelta(seconds=0.2))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": "0"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ResourceError), joined_world():
        pass


@pytest.mark.parametrize(
    "act",
    [
        lambda: LEFT_ALONE.add_up([torch.ones(1)]),
        lambda: LEFT_ALONE.agree(goes_on=True),
        lambda: LEFT_ALONE.after_first(lambda: 1, lambda: 2),
    ],
    ids=["add up", "agree", "after first"],
)
def test_others_that_are_gone_are_told_of(act: Callable[[], object]) -> None:
    with pytest.raises(ResourceError, match="--resume"):
        act()
