"""Encoded sentences: which pairs are kept, and files that are written in parts and read as one."""

from pathlib import Path

import numpy as np
import pytest

from mt_cli.data.encoded import (
    EncodedPairs,
    EncodedSplit,
    Sentences,
    id_type,
    open_split,
    write_split,
)
from mt_cli.data.prepare import encode_pairs
from mt_cli.data.prepared import SideReport
from mt_cli.errors import DataError
from mt_cli.text import SPECIALS
from mt_cli.text.tokenizers import TextOptions, Tokenizers
from mt_cli.text.words import WordTokenizer

RAW = [
    (b"ein Hund\n", b"a dog\n"),
    (b"\xe2\x80\x8b \n", b"a dog\n"),
    (b"ein\n", b"\n"),
    (b"ein  Hund \r\n", b"a big dog\n"),
    (b"ein Hund ein Hund\n", b"a dog\n"),
]


def tokenizers(*, lowercase: bool = False) -> Tokenizers:
    return Tokenizers(
        WordTokenizer("de", [*SPECIALS, "ein", "Hund", "hund"]),
        WordTokenizer("en", [*SPECIALS, "a", "dog", "big"]),
        kind="spacy",
        joint=False,
        options=TextOptions("de", "en", lowercase),
    )


def pairs(src: list[list[int]], tgt: list[list[int]]) -> EncodedPairs:
    lines = [(f"s{ids}".encode(), f"t{ids}".encode()) for ids in src]
    return EncodedPairs(EncodedSplit(Sentences.of(src), Sentences.of(tgt)), lines, too_long=0)


def write(folder: Path, *parts: EncodedPairs) -> None:
    write_split(folder, "val", parts, src_type=np.uint16, tgt_type=np.int32)


def lists(sequences: Sentences) -> list[list[int]]:
    return [sequences[i].tolist() for i in range(len(sequences))]


def test_every_line_is_kept_without_a_limit() -> None:
    encoded = encode_pairs(RAW, tokenizers=tokenizers(), max_len=None)
    assert lists(encoded.split.src) == [[4, 5], [], [4], [4, 5], [4, 5, 4, 5]]
    assert lists(encoded.split.tgt) == [[4, 5], [4, 5], [], [4, 6, 5], [4, 5]]
    assert encoded.too_long == 0


def test_pairs_with_a_side_that_is_too_long_are_dropped() -> None:
    encoded = encode_pairs(RAW, tokenizers=tokenizers(), max_len=3)
    assert encoded.too_long == 1
    assert lists(encoded.split.src) == [[4, 5], [], [4], [4, 5]]


def test_text_is_lowercased_as_the_tokenizers_were_learned() -> None:
    encoded = encode_pairs(RAW[:1], tokenizers=tokenizers(lowercase=True), max_len=None)
    assert encoded.split.src[0].tolist() == [4, 6]


def test_lengths_of_a_report_are_those_of_real_lines() -> None:
    sentences = [[4] * length for length in (500, *range(1, 101), 500)]
    described = SideReport.of(Sentences.of(sentences), 1, 101)
    assert described.lengths == {"50": 51, "90": 91, "99": 100, "100": 100}
    assert described.tokens == 5050


def test_parts_are_read_back_as_one(tmp_path: Path) -> None:
    parts = [([[4], [5, 6]], [[7, 7], []]), ([], []), ([[], [8]], [[9], [70_000, 4, 4]])]
    write(tmp_path, *(pairs(src, tgt) for src, tgt in parts))
    split = open_split(tmp_path, "val")
    assert lists(split.src) == [[4], [5, 6], [], [8]]
    assert lists(split.tgt) == [[7, 7], [], [9], [70_000, 4, 4]]
    assert split.src.lengths.tolist() == [1, 2, 0, 1]
    assert isinstance(split.src.ids, np.memmap)


@pytest.mark.parametrize(("vocab_size", "expected"), [(65536, np.uint16), (65537, np.int32)])
def test_ids_take_two_bytes_where_they_fit(vocab_size: int, expected: type[np.generic]) -> None:
    assert id_type(vocab_size) is expected


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


def test_missing_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"val\.src\.npy: "):
        open_split(tmp_path, "val")


@pytest.mark.parametrize(
    "offsets", [[], [0], [0, 1], [0, 2, 1, 3], [1, 2, 3], [0, 1, 2], [0, 1, 4], [-1, 1, 3]], ids=str
)
def test_offsets_that_do_not_cut_the_ids_into_sentences_are_refused(
    tmp_path: Path, offsets: list[int]
) -> None:
    write(tmp_path, pairs([[4], [5, 6]], [[7], [8]]))
    np.save(tmp_path / "val.src.offsets.npy", np.array(offsets, np.int64))
    with pytest.raises(DataError):
        open_split(tmp_path, "val")
