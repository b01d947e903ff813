"""What a process does when others are missing; `cli/test_torchrun` trains with several."""

import os
import sys
from datetime import timedelta

import pytest
from started import Start
from trained import free_port

from mt_cli.errors import ResourceError
from mt_cli.training import distributed
from mt_cli.training.distributed import joined_world

SOON_S = 60
"""Start of Python and of PyTorch included, on a busy machine."""


def test_a_process_that_never_comes_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "RENDEZVOUS_TIMEOUT", timedelta(seconds=0.2))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    for name, value in {**place, "RANK": "0"}.items():
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
def test_where_one_process_fails_all_end(start: Start, has_gpus: bool) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    code = ONE_FAILS.replace("HAS_GPUS", str(has_gpus))
    processes = [
        start(sys.executable, "-c", code, env={**os.environ, **place, "RANK": str(rank)})
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=SOON_S)[1] for process in processes]
    assert [process.returncode for process in processes] == [5, 5]
    assert "cannot reach each other" in errors[0]
    assert "CUDA error: device-side assert triggered" in errors[1]
