"""Files of tensors: refused for what their header says, before any of it is believed."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mt_cli.artefacts.files import sha256_file
from mt_cli.artefacts.tensor_files import read_tensors, write_tensors
from mt_cli.errors import DataError

SHAPES = {"a": (2, 3), "b": (4,)}
WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4)}


def read(path: Path) -> dict[str, Tensor]:
    """What is in `path`, whose hash is right, as of somebody who has made the whole file."""
    return read_tensors(path, below=path.parent, sha256=sha256_file(path), shapes=SHAPES)


def test_halves_come_back_as_whole_floats(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {name: each.half() for name, each in WEIGHTS.items()})
    expected = {name: each.half().float() for name, each in WEIGHTS.items()}
    torch.testing.assert_close(read(tmp_path / "x"), expected, rtol=0, atol=0)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, number: float) -> None:
    write_tensors(tmp_path / "x", {**WEIGHTS, "b": torch.tensor([1.0, 2.0, number, 3.0])})
    with pytest.raises(DataError, match=r"x: b holds NaN or infinity, so nothing can be computed with it"):
        read(tmp_path / "x")
