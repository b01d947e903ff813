"""Encoded sentences: which pairs are kept, files in parts that are read as one, and lengths."""

import errno
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mt_cli.config.schema import DecodingConfig
from mt_cli.data import encoded
from mt_cli.data.encode import encode_pairs
from mt_cli.data.encoded import EncodedSplit, Sentences, TrainingLengths, open_split, write_split
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
Ids = list[list[int]]


def lists(sentences: Sentences) -> Ids:
    return [sentences[i].tolist() for i in range(len(sentences))]


@pytest.mark.parametrize(
    ("max_len", "lowercase", "src_ids", "num_too_long"),
    [
        (None, True, [[4, 6], [], [4], [4, 6], [4, 6, 4, 6]], 0),
        (3, False, [[4, 5], [], [4], [4, 5]], 1),
    ],
    ids=["lower case", "limit"],
)
def test_lines_are_encoded_and_only_those_beyond_a_limit_dropped(
    max_len: int | None, lowercase: bool, src_ids: Ids, num_too_long: int
) -> None:
    tokenizers = Tokenizers(
        WordTokenizer("de", [*SPECIALS, "ein", "Hund", "hund"]),
        WordTokenizer("en", [*SPECIALS, "a", "dog", "big"]),
        kind="spacy",
        joint=False,
        options=TextOptions("de", "en", lowercase),
    )
    split, lines, found = encode_pairs(RAW, tokenizers=tokenizers, max_len=max_len)
    assert (lists(split.src), found) == (src_ids, num_too_long)
    assert lists(split.tgt) == [[4, 5], [4, 5], [], [4, 6, 5], [4, 5]][: len(src_ids)]
    assert lines[3] == (b"ein  Hund ", b"a big dog")
    assert len(lines) == len(src_ids)


def write(folder: Path, *parts: tuple[Ids, Ids]) -> None:
    pairs = []
    for src, tgt in parts:
        split = EncodedSplit(Sentences.of(src), Sentences.of(tgt))
        pairs.append((split, [(b"source", b"target")] * len(src)))
    write_split(folder, "val", pairs, src_type=np.uint16, tgt_type=np.int32)


def test_parts_are_read_back_as_one(tmp_path: Path) -> None:
    write(tmp_path, ([[4], [5, 6]], [[7, 7], []]), ([], []), ([[], [8]], [[9], [70_000, 4, 4]]))
    split = open_split(tmp_path, "val")
    assert lists(split.src) == [[4], [5, 6], [], [8]]
    assert lists(split.tgt) == [[7, 7], [], [9], [70_000, 4, 4]]
    assert split.src.lengths.tolist() == [1, 2, 0, 1]
    assert isinstance(split.src.arrays[0][0], np.memmap)


NO_IDS = {
    "floats": np.zeros(3, np.float32),
    "objects": np.array([None, None, None]),
    "matrix": np.zeros((3, 3), np.uint16),
    "no offsets": np.array([], np.int64),
    "not from the start": np.array([1, 2, 3]),
    "beyond the end": np.array([0, 1, 4]),
}


@pytest.mark.parametrize("shape", ["(-1,)", "(1000000000000,)", "__import__('os').system('false')"])
def test_a_header_that_lies_or_calls_is_refused(tmp_path: Path, shape: str) -> None:
    write(tmp_path, ([[4], [5, 6]], [[7], [8]]))
    header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "val.src.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"val\.src\.npy: "):
        open_split(tmp_path, "val")


def test_where_files_cannot_be_mapped_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    write(tmp_path, ([[4], [5, 6]], [[7], [8]]))
    monkeypatch.setattr("mmap.mmap", refuse)
    assert lists(open_split(tmp_path, "val").src) == [[4], [5, 6]]


@pytest.mark.parametrize("array", NO_IDS.values(), ids=NO_IDS)
@pytest.mark.parametrize("name", ["val.src.npy", "val.src.offsets.npy"])
def test_what_are_no_ids_or_do_not_fit_their_offsets_is_refused(
    tmp_path: Path, name: str, array: NDArray[np.generic]
) -> None:
    write(tmp_path, ([[4], [5, 6]], [[7], [8]]))
    np.save(tmp_path / name, array)
    with pytest.raises(DataError, match=r"val\.src\.(offsets\.)?npy: "):
        open_split(tmp_path, "val")


@pytest.mark.parametrize(
    ("num_lines", "expected"),
    [({1: 96, 3: 4}, 1), ({1: 95, 3: 5}, 3), ({1: 94, 2: 3, 7: 3}, 2), ({}, 1)],
    ids=str,
)
@pytest.mark.parametrize("ratio", [0.2, 8])
def test_lengths_of_training_are_common_ones_and_leave_room_for_its_targets(
    num_lines: dict[int, int], expected: int, ratio: float
) -> None:
    src, tgt = ([[7] * round(each * n) for n in range(1, 101)] for each in (1, ratio))
    split = EncodedSplit(Sentences.of(src), Sentences.of(tgt))
    lengths = TrainingLengths.of(split, Counter(num_lines))
    assert (lengths.src_tokens, lengths.sentences) == (100, expected)
    assert ratio > 1 or lengths.max_len_factor == 1.5
    extra = DecodingConfig().max_len_extra
    for source, target in zip(src, tgt, strict=True):
        assert int(lengths.max_len_factor * len(source)) + extra >= len(target)


def test_runs_from_all_over_a_large_corpus_tell_its_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoded, "MEASURED", 40)
    monkeypatch.setattr(encoded, "MEASURED_TOGETHER", 4)
    src = [[7] * (1 + number // 40) for number in range(400)]  # one to ten, the longest last
    split = EncodedSplit(Sentences.of(src), Sentences.of(src))
    assert TrainingLengths.of(split, Counter()).src_tokens == 10
    for size in (41, 79, 80, 81, 119):  # where a floor would leave the end out
        longer = [*src[: size - 1], [7] * 99]
        whole = EncodedSplit(Sentences.of(longer), Sentences.of(longer))
        assert TrainingLengths.of(whole, Counter()).src_tokens == 99
    short = EncodedSplit(Sentences.of(src[:39]), Sentences.of(src[:39]))
    assert TrainingLengths.of(short, Counter()).src_tokens == 1
