"""What a process does when others are missing; `cli/test_torchrun` trains with several."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch

from mt_cli.errors import ResourceError
from mt_cli.training import distributed
from mt_cli.training.distributed import World, joined_world

SOON_S = 60
"""Start of Python and of PyTorch included, on a busy machine."""
LEFT_ALONE = World(rank=0, size=2)
"""The first of two whose group is gone."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


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
        assert world.maximum(7) == 7


def test_a_process_that_never_comes_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    monkeypatch.setattr(distributed, "RENDEZVOUS_TIMEOUT", timedelta(seconds=0.2))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": "0"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ResourceError), joined_world():
        pass


ONE_FAILS = """
import sys, time

import torch
from torch import distributed as dist

from mt_cli.cli import main
from mt_cli.training.distributed import joined_world

if HAS_GPUS:
    torch.cuda.is_available = dist.is_nccl_available = lambda: True
    dist.new_group = lambda backend, timeout: dist.group.WORLD
    dist.destroy_process_group = lambda: time.sleep(1000)  # NCCL's waits for the others


def train():
    with joined_world() as world:
        if world.rank == 1:
            raise RuntimeError("CUDA error: device-side assert triggered")
        while True:
            world.all_reduce([torch.ones(1)])


sys.modules["mt_cli.cli.app"].app = train
main()
"""


@pytest.mark.processes
@pytest.mark.parametrize("has_gpus", [False, True], ids=["gloo", "nccl"])
def test_where_one_process_fails_all_end(has_gpus: bool) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    code = ONE_FAILS.replace("HAS_GPUS", str(has_gpus))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **place, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=SOON_S)[1] for process in processes]
    assert [process.returncode for process in processes] == [5, 5]
    assert "another process of this training cannot be reached" in errors[0]
    assert "CUDA error: device-side assert triggered" in errors[1]


@pytest.mark.parametrize(
    "act",
    [
        lambda: LEFT_ALONE.all_reduce([torch.ones(1)]),
        lambda: LEFT_ALONE.broadcast_bool(True),
        lambda: LEFT_ALONE.maximum(1),
        lambda: LEFT_ALONE.after_first(lambda: 1, lambda: 2),
    ],
    ids=["all_reduce", "broadcast", "maximum", "after_first"],
)
def test_others_that_are_gone_are_told_of(act: Callable[[], object]) -> None:
    with pytest.raises(ResourceError, match="--resume"):
        act()
