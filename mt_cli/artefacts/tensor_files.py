"""Files of tensors: whether one holds what is expected is known before any tensor of it is made.

Knows the safetensors format and tensors by name; never a model.

    8 bytes    length of the header, little-endian
    header     JSON: name -> {"dtype": "F32", "shape": [8, 8], "data_offsets": [begin, end]}
    the rest   the tensors' bytes, one after the other
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from mt_cli.artefacts.files import check_hash, opened, write_atomically
from mt_cli.artefacts.json_files import parse_json
from mt_cli.errors import DataError

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 1 << 23
"""Of a header; one of a hundred layers has less than a megabyte."""
MOST_NUMBERS = 4
"""In a checkpoint's file, for each parameter of its model: an optimiser keeps two."""
MOST_BYTES_BESIDE, MOST_TENSORS_BESIDE = 1 << 26, 1000
"""Of what else a file may hold, such as states of random generators."""
METADATA = "__metadata__"
SIZES = {"F32": 4, "F16": 2, "F64": 8, "U8": 1, "I64": 8}
"""Bytes of a number, of every kind that this program writes, or early versions wrote."""
OF_WEIGHTS = ("F32", "F16")
"""Kinds of numbers that weights are stored as: halves in exported runs alone."""
Shapes = Mapping[str, tuple[int, ...]]


class _Entry(BaseModel):
    """What the header says of a tensor."""

    model_config = ConfigDict(strict=True, extra="forbid")

    dtype: str
    shape: list[int]
    data_offsets: list[int]


_Header = TypeAdapter(dict[str, _Entry])


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write `tensors` to `path`, atomically."""
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, safetensors.torch.save(on_cpu))


def most_bytes(shapes: Shapes) -> int:
    """The largest size of a checkpoint's file, of a model whose parameters have `shapes`."""
    numbers = MOST_NUMBERS * sum(map(math.prod, shapes.values()))
    return LENGTH_BYTES + MOST_HEADER_BYTES + MOST_BYTES_BESIDE + numbers * SIZES["F32"]


def read_tensors(
    path: Path, *, below: Path, sha256: str, shapes: Shapes, are_parameters: bool = True
) -> dict[str, Tensor]:
    """The tensors in `path`, of a model whose parameters have `shapes`; see `opened` for `below`.

    They have to be those parameters, which become 32-bit floats, or else what an optimiser remembers.

    Raises:
        DataError: the file is altered, is no such file, or holds other tensors or numbers that are none.
    """
    with opened(path, below=below, most=most_bytes(shapes)) as file:
        check_hash(path, hashlib.file_digest(file, "sha256").hexdigest(), expected=sha256)
        file.seek(0)
        header = _read_header(path, file)
        if are_parameters:
            _check_parameters(path, header, shapes)
        elif len(header.entries) > MOST_NUMBERS * len(shapes) + MOST_TENSORS_BESIDE:
            raise DataError(f"{path}: holds {len(header.entries):,} tensors, more than a training has")
        _check_size(path, file, header)
        file.seek(0)
        data = file.read()
    try:
        tensors = safetensors.torch.load(data)
    except SafetensorError as error:
        raise DataError(f"{path}: not a safetensors file: {error}") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(
                f"{path}: {name} holds NaN or infinity, so nothing can be computed with it; "
                "use another checkpoint, or train anew"
            )
    return {name: tensor.float() for name, tensor in tensors.items()} if are_parameters else tensors


@dataclass(frozen=True)
class _Contents:
    """A header, and its own length in bytes."""

    length: int
    entries: dict[str, _Entry]


def _read_header(path: Path, file: BufferedReader) -> _Contents:
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    if length > MOST_HEADER_BYTES:
        raise DataError(f"{path}: not a safetensors file: its header would have {length:,} bytes")
    try:
        header = parse_json(file.read(length))
        if isinstance(header, dict):
            header.pop(METADATA, None)
        return _Contents(length, _Header.validate_python(header))
    except ValidationError as error:
        raise DataError(f"{path}: not a safetensors file: its header is damaged") from error
    except ValueError as error:
        raise DataError(f"{path}: not a safetensors file: its header is no JSON ({error})") from error


def _check_parameters(path: Path, header: _Contents, shapes: Shapes) -> None:
    found_shapes = {name: tuple(entry.shape) for name, entry in header.entries.items()}
    for name in sorted(shapes.keys() | found_shapes.keys()):
        found, expected = found_shapes.get(name, "nothing"), shapes.get(name, "nothing")
        if found != expected:
            raise DataError(f"{path}: not the weights of this model: {name} is {found}, expected {expected}")
    for name, entry in header.entries.items():
        if entry.dtype not in OF_WEIGHTS:
            raise DataError(
                f"{path}: not the weights of this model: {name} is of {entry.dtype} numbers, "
                f"expected {' or '.join(OF_WEIGHTS)}"
            )


def _check_size(path: Path, file: BufferedReader, header: _Contents) -> None:
    """Make sure that the file holds its tensors and nothing else."""
    unknown = sorted({entry.dtype for entry in header.entries.values()} - SIZES.keys())
    if unknown:
        raise DataError(f"{path}: holds numbers of the kind {unknown[0]}, expected {', '.join(SIZES)}")
    of_tensors = sum(math.prod(entry.shape) * SIZES[entry.dtype] for entry in header.entries.values())
    expected, found = LENGTH_BYTES + header.length + of_tensors, file.seek(0, 2)
    if found != expected:
        raise DataError(f"{path}: not a safetensors file: {found:,} bytes, but its header says {expected:,}")
