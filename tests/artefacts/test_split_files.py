"""Encoded sentences on disk: written in parts, read as one by memory map."""

from pathlib import Path

import numpy as np
import pytest

from mt_cli.data.prepared import (
    EncodedPairs,
    EncodedSplit,
    Sentences,
    id_type,
    open_split,
    write_split,
)
from mt_cli.errors import DataError


def pairs(src: list[list[int]], tgt: list[list[int]]) -> EncodedPairs:
    split = EncodedSplit(Sentences.of(src), Sentences.of(tgt))
    return EncodedPairs(
        split, [(f"s{ids}".encode(), f"t{ids}".encode()) for ids in src], too_long=0
    )


def write(folder: Path, *parts: EncodedPairs) -> None:
    write_split(folder, "val", parts, [np.uint16, np.int32])


def lists(sequences: Sentences) -> list[list[int]]:
    return [sequences[i].tolist() for i in range(len(sequences))]


def test_parts_are_read_back_as_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        pairs([[4], [5, 6]], [[7, 7], []]),
        pairs([], []),
        pairs([[], [8]], [[9], [4, 4, 4]]),
    )
    split = open_split(tmp_path, "val")
    assert lists(split.src) == [[4], [5, 6], [], [8]]
    assert lists(split.tgt) == [[7, 7], [], [9], [4, 4, 4]]


def test_arrays_are_memory_mapped_in_their_own_type(tmp_path: Path) -> None:
    write(tmp_path, pairs([[4]], [[70000]]))
    split = open_split(tmp_path, "val")
    assert isinstance(split.src.ids, np.memmap)
    assert isinstance(split.tgt.offsets, np.memmap)
    assert split.src.ids.dtype == np.uint16
    assert split.tgt.ids.dtype == np.int32
    assert split.tgt[0].tolist() == [70000]


@pytest.mark.parametrize(("vocab_size", "expected"), [(65536, np.uint16), (65537, np.int32)])
def test_ids_take_two_bytes_where_they_fit(
    tmp_path: Path, vocab_size: int, expected: type[np.generic]
) -> None:
    largest = vocab_size - 1
    write_split(tmp_path, "val", [pairs([[largest]], [[4]])], [id_type(vocab_size), np.uint16])
    sequences = open_split(tmp_path, "val").src
    assert id_type(vocab_size) is expected
    assert sequences.ids.dtype == expected
    assert sequences[0].tolist() == [largest]


def test_missing_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"val\.src\.npy: cannot be read as an array"):
        open_split(tmp_path, "val")


def npy(dtype: str, shape: str, content: bytes = b"") -> bytes:
    """A file of numpy's format, whatever its header says."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize(
    "content",
    [
        npy("<f4", "(3,)", bytes(12)),
        npy("|O", "(1,)", b"cos\nsystem\n(S'false'\ntR."),
        npy("<u2", "(2, 3)", bytes(12)),
        npy("<u2", "(-1,)"),
        npy("<u2", "(1000000000000,)"),
        npy("<u2", "__import__('os').system('false')"),
        b"",
    ],
    ids=["floats", "objects", "matrix", "negative shape", "shape beyond the end", "call", "empty"],
)
def test_what_is_no_array_of_ids_is_refused(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, pairs([[4], [5, 6]], [[7], [8]]))
    (tmp_path / "val.src.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"val\.src\.(offsets\.)?npy: "):
        open_split(tmp_path, "val")


@pytest.mark.parametrize(
    "offsets",
    [[], [0], [0, 1], [0, 2, 1, 3], [1, 2, 3], [0, 1, 2], [0, 1, 4], [-1, 1, 3]],
    ids=str,
)
def test_offsets_that_do_not_cut_the_ids_into_sentences_are_refused(
    tmp_path: Path, offsets: list[int]
) -> None:
    write(tmp_path, pairs([[4], [5, 6]], [[7], [8]]))
    np.save(tmp_path / "val.src.offsets.npy", np.array(offsets, np.int64))
    with pytest.raises(
        DataError, match=r"(val\.src\.offsets\.npy: not where the sentences|1 sources)"
    ):
        open_split(tmp_path, "val")
