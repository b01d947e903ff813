"""Files of tensors: refused for what their header says, before any of it is believed."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mt_cli.artefacts import tensor_files
from mt_cli.artefacts.files import sha256_file
from mt_cli.artefacts.tensor_files import read_tensors, write_tensors
from mt_cli.errors import DataError

SHAPES = {"a": (2, 3), "b": (4,)}
WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4)}


def read(path: Path) -> dict[str, Tensor]:
    """What is in `path`, whose hash is right, as of somebody who has made the whole file."""
    return read_tensors(path, below=path.parent, sha256=sha256_file(path), shapes=SHAPES)


def raw(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file with the given header, which may say what it likes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: object = (4,), end: int = 16) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def test_training_state_of_more_tensors_than_any_has_is_refused(tmp_path: Path) -> None:
    many = {f"{i}": torch.zeros(1) for i in range(1010)}
    write_tensors(tmp_path / "x", many)
    with pytest.raises(DataError, match=r"x: holds 1,010 tensors, more than a training has"):
        read_tensors(
            tmp_path / "x",
            below=tmp_path,
            sha256=sha256_file(tmp_path / "x"),
            shapes=SHAPES,
            are_parameters=False,
        )


def test_weights_come_back(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", WEIGHTS)
    torch.testing.assert_close(read(tmp_path / "x"), WEIGHTS, rtol=0, atol=0)


def test_halves_come_back_as_whole_floats(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {name: each.half() for name, each in WEIGHTS.items()})
    expected = {name: each.half().float() for name, each in WEIGHTS.items()}
    torch.testing.assert_close(read(tmp_path / "x"), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.float64, torch.bfloat16, torch.bool, torch.complex64], ids=str
)
def test_weights_of_another_kind_of_number_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    write_tensors(tmp_path / "x", {**WEIGHTS, "b": torch.ones(4, dtype=dtype)})
    with pytest.raises(
        DataError, match=r"x: not the weights of this model: b is of \w+ numbers, expected F32"
    ):
        read(tmp_path / "x")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, number: float) -> None:
    write_tensors(tmp_path / "x", {**WEIGHTS, "b": torch.tensor([1.0, 2.0, number, 3.0])})
    with pytest.raises(DataError, match=r"x: b holds NaN or infinity, so nothing can be computed with it"):
        read(tmp_path / "x")


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ({"a": WEIGHTS["a"]}, r"b is nothing, expected \(4,\)"),
        ({**WEIGHTS, "c": torch.ones(1)}, r"c is \(1,\), expected nothing"),
        ({**WEIGHTS, "a": torch.ones(3, 2)}, r"a is \(3, 2\), expected \(2, 3\)"),
    ],
    ids=["missing", "one more", "turned"],
)
def test_other_tensors_are_refused(tmp_path: Path, weights: dict[str, Tensor], complaint: str) -> None:
    write_tensors(tmp_path / "x", weights)
    with pytest.raises(DataError, match=rf"x: not the weights of this model: {complaint}"):
        read(tmp_path / "x")


HEADER = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "b": entry(end=40)}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "its header is no JSON"),
        (b"\x01", "its header is no JSON"),
        (raw(HEADER, length=1 << 62), "its header would have 4,611,686,018,427,387,904 bytes"),
        (raw(HEADER, length=20), "its header is no JSON"),
        (raw([]), "its header is damaged"),
        (raw({"a": 1}), "its header is damaged"),
        (raw({"a": entry(shape="2")}), "its header is damaged"),
        (raw(b"[" * 10**6), "more than 32 levels deep"),
        (raw(HEADER, bytes(39)), "174 bytes, but its header says 175"),
        (raw(HEADER, bytes(41)), "176 bytes, but its header says 175"),
        (raw(HEADER, bytes(40)), "not a safetensors file"),  # both begin at 0
    ],
    ids=[
        "empty",
        "short",
        "huge",
        "cut",
        "list",
        "number",
        "text",
        "deep",
        "too small",
        "too large",
        "overlap",
    ],
)
def test_what_is_no_file_of_tensors_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=rf"x: not a safetensors file: .*{complaint}|x: {complaint}"):
        read(tmp_path / "x")


def test_header_of_a_million_tensors_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_files, "parse_json", lambda data: pytest.fail("it was read"))
    million = 60 * 10**6  # bytes that so many entries take
    (tmp_path / "x").write_bytes(raw(b" " * million))
    with pytest.raises(DataError, match=r"its header would have 60,000,000 bytes"):
        read(tmp_path / "x")


def test_altered_file_is_told_by_its_hash_first(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"junk")
    with pytest.raises(DataError, match="x: altered or damaged: sha256"):
        read_tensors(tmp_path / "x", below=tmp_path, sha256="0" * 64, shapes=SHAPES)
