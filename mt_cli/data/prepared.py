"""Prepared data: a folder of encoded splits, raw lines and tokenizers, under a manifest of hashes.

manifest.json  report.json  tokenizer/
<split>.<side>.npy  <split>.<side>.offsets.npy     flat ids, and where sentences begin: memory-mapped
<split>.<side>.txt                                  the corpus's own lines
"""

import functools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mt_cli.config.load import table_differences
from mt_cli.config.schema import MORE, TRAIN, Config, DataConfig, TokenizerConfig
from mt_cli.errors import DataError, PreparedDataError, command_line
from mt_cli.machine.files import (
    MANIFEST,
    MOST_TEXT_BYTES,
    check_hashes,
    read_file,
    read_json,
    recover,
    sha256_bytes,
    sha256_of_files,
    write_json,
)
from mt_cli.machine.terminal import table_text
from mt_cli.text import UNK_ID
from mt_cli.text.normalize import decode_line
from mt_cli.text.tokenizer import Tokenizers

REPORT, TOKENIZER = "report.json", "tokenizer"
PERCENTILES = (50, 90, 99, 100)
COUNTED_TOGETHER = 1 << 22
"""Ids read at a time, so that a memory-mapped corpus need not fit into memory."""
Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
IdArray = NDArray[np.uint16] | NDArray[np.int32]
IdType = type[np.uint16] | type[np.int32]


# Encoded sentences


def id_type(vocab_size: int) -> IdType:
    """The smallest type that holds ids below `vocab_size`."""
    return np.uint16 if vocab_size <= 1 << 16 else np.int32


@dataclass(frozen=True)
class Sentences:
    """Sentences of one side, one after another."""

    ids: IdArray
    offsets: NDArray[np.int64]
    """Sentence i is `ids[offsets[i]:offsets[i + 1]]`."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids in each sentence."""
        return np.diff(self.offsets)

    def lengths_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of ids in each sentence at `indices` (N,): (N,)."""
        return self.offsets[indices + 1] - self.offsets[indices]

    def slice(self, begin: int, end: int) -> "Sentences":
        """Sentences `begin` to `end` - 1."""
        offsets = self.offsets[begin : end + 1]
        return Sentences(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> IdArray:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def of(sentences: Sequence[Sequence[int]], *, vocab_size: int) -> "Sentences":
        """`sentences` in the smallest type that holds `vocab_size` ids."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum()))
        return Sentences(
            ids if id_type(vocab_size) is np.int32 else ids.astype(np.uint16),
            np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))),
        )


@dataclass(frozen=True)
class Portion:
    """Successive pairs of a split."""

    size: int
    share: float
    """How often an epoch sees each pair, on average; 1 is once."""


@dataclass(frozen=True)
class EncodedSplit:
    """Both sides of a split, line by line."""

    src: Sentences
    tgt: Sentences
    portions: tuple[Portion, ...] = ()
    """The portions that make up the split, in order; empty if it has only one."""

    def slice(self, begin: int, end: int) -> "EncodedSplit":
        """Pairs `begin` to `end` - 1."""
        return EncodedSplit(self.src.slice(begin, end), self.tgt.slice(begin, end))

    def __len__(self) -> int:
        return len(self.src)


# The report


class _Frozen(BaseModel):
    """A record that never changes."""

    model_config = ConfigDict(frozen=True, strict=True)


class SideReport(_Frozen):
    """One side of a split, as encoded."""

    tokens: int
    unknown: int
    """Tokens that are `<unk>`."""
    unknown_rate: float
    lengths: dict[str, int]
    """Percentiles of tokens per line: half of the lines have at most `lengths["50"]`."""

    @staticmethod
    def of(sentences: Sentences) -> "SideReport":
        """Lengths and unknown tokens of encoded lines."""
        ids = sentences.ids
        begins = range(0, len(ids), COUNTED_TOGETHER)
        unknown = sum(int((ids[i : i + COUNTED_TOGETHER] == UNK_ID).sum()) for i in begins)
        # "higher" gives a length that some line has, never one between two.
        found = np.percentile(sentences.lengths, PERCENTILES, method="higher") if len(sentences) else [0] * 4
        return SideReport(
            tokens=len(ids),
            unknown=unknown,
            unknown_rate=unknown / max(1, len(ids)),
            lengths={str(p): int(length) for p, length in zip(PERCENTILES, found, strict=True)},
        )


class SplitReport(_Frozen):
    """One split."""

    lines: int
    """Lines of the input files."""
    pairs: int
    """Pairs kept."""
    dropped: dict[str, int]
    """Pairs left out, by reason; none outside the training data."""
    invalid_utf8: int = 0
    """Lines with a side that is not valid UTF-8; their invalid bytes are left out."""
    duplicates: int
    """Lines whose normalised pair is on an earlier line too."""
    src_in_train: int | None
    """Lines whose source is in the training pairs (for an added part: the corpus's own); None for `train`."""
    pairs_in_train: int | None
    """Lines whose source and target are together in the same training pairs; None for `train`."""
    src: SideReport
    tgt: SideReport


class CorpusReport(_Frozen):
    """What `prepare` found in a corpus and made of it."""

    src_vocab_size: int
    tgt_vocab_size: int
    splits: dict[str, SplitReport]

    def as_json(self) -> dict[str, object]:
        """The form that `report.json` and `prepare --json` have."""
        return self.model_dump(mode="json")

    def as_text(self) -> str:
        """A table, one line a split, and what was dropped below it."""
        rows = [
            (
                name,
                f"{split.lines:,}",
                f"{split.pairs:,}",
                "/".join(map(str, split.src.lengths.values())),
                "/".join(map(str, split.tgt.lengths.values())),
                f"{split.src.unknown_rate:.2%}",
                f"{split.tgt.unknown_rate:.2%}",
            )
            for name, split in self.splits.items()
        ]
        head = ("split", "lines", "pairs", "src tokens", "tgt tokens", "<unk> src", "tgt")
        shares = "/".join(map(str, PERCENTILES))
        legend = f"(tokens of a line: {shares} % of the lines have at most so many)"
        vocabulary = f"vocabulary  src {self.src_vocab_size:,}  tgt {self.tgt_vocab_size:,}"
        return "\n".join([table_text(head, rows), legend, vocabulary, *self._notes()])

    def _notes(self) -> Iterator[str]:
        for name, split in self.splits.items():
            for reason, count in sorted(split.dropped.items()):
                yield f"{name}: {count:,} pairs dropped: {reason}"
            if split.invalid_utf8:
                yield f"{name}: {split.invalid_utf8:,} lines are not valid UTF-8"
            if split.duplicates:
                yield f"{name}: {split.duplicates:,} of {split.lines:,} lines repeat an earlier pair"
            if split.src_in_train:
                yield (
                    f"{name}: {split.src_in_train:,} of {split.lines:,} sources occur in train "
                    f"({split.pairs_in_train:,} with the same target)"
                )


# The folder


class Manifest(_Frozen):
    """`manifest.json`: what was prepared, and from which files and options."""

    format: Literal[1] = 1
    data: dict[str, object]
    """The config's [data]."""
    tokenizer: dict[str, object]
    """The config's [tokenizer]."""
    inputs: dict[str, str]
    """sha256 of the corpus files, by `<split>.<side>`."""
    outputs: dict[str, str]
    """sha256 of the files beside this one, by relative path."""
    pairs: dict[str, Annotated[int, Field(ge=0)]]
    """Pairs of each split. The files of `train` hold its own pairs, then those of each `train+<name>`."""
    dropped: dict[str, dict[str, int]]
    """Pairs left out, by split and reason."""

    def differing_keys(self, config: Config) -> list[str]:
        """Each key of [data] and [tokenizer] that `config` sets to another value."""
        stored = {  # an option that is not stored had its default
            "data": DataConfig().model_dump(mode="json") | self.data,
            "tokenizer": TokenizerConfig().model_dump(mode="json") | self.tokenizer,
        }
        wanted = config.model_dump(mode="json", include=set(stored))
        return [
            f"{path} was {json.dumps(was)}, is {json.dumps(now)}"
            for path, (was, now) in table_differences(stored, wanted).items()
        ]


@dataclass(frozen=True)
class Prepared:
    """An opened folder of prepared data."""

    folder: Path
    manifest: Manifest

    @property
    def sha256(self) -> str:
        """Identifies the content, independent of the folder's place and of what made it."""
        content = {name: digest for name, digest in self.manifest.outputs.items() if name != REPORT}
        return sha256_bytes(json.dumps(content, sort_keys=True).encode())

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers."""
        paths = [self.folder / name for name in self.manifest.outputs if name.startswith(f"{TOKENIZER}/")]
        try:
            return Tokenizers.from_files({path.name: read_file(path) for path in paths})
        except DataError as error:
            raise PreparedDataError(f"{self.folder / TOKENIZER}: {error}") from error

    def split(self, name: str) -> EncodedSplit:
        """Encoded pairs of split `name`, memory-mapped; `train` includes the pairs that the config adds."""
        self._check_has(name)
        split = open_split(self.folder, name)
        portions = self._portions() if name == TRAIN else ()
        expected = sum(portion.size for portion in portions) if portions else self.manifest.pairs[name]
        if len(split) != expected:
            raise PreparedDataError(
                f"{self.folder}: {name} has {len(split):,} pairs, but {MANIFEST} says {expected:,}"
            )
        return replace(split, portions=portions)

    def lines(self, name: str, side: Side) -> list[str]:
        """The corpus's own lines of split `name`, not normalised; row i belongs to pair i."""
        self._check_has(name)
        path = lines_path(self.folder, name, side)
        raw = read_file(path, most=MOST_TEXT_BYTES).split(b"\n")[:-1]
        expected = self.manifest.pairs[name]
        if len(raw) < expected:
            raise PreparedDataError(f"{path}: {len(raw):,} lines, but {MANIFEST} says {expected:,}")
        return [decode_line(line) for line in raw[:expected]]  # added pairs follow

    def report(self) -> CorpusReport:
        """The report that was stored when the data were prepared."""
        path = self.folder / REPORT
        try:
            return CorpusReport.model_validate_json(read_file(path))
        except (DataError, ValidationError) as error:
            again = command_line("prepare", "CONFIG", "--force")
            raise PreparedDataError(f"{path}: damaged; to make it anew: {again}") from error

    def _portions(self) -> tuple[Portion, ...]:
        """The portions of the training split; empty if the config adds no pairs."""
        pairs = self.manifest.pairs
        try:
            more = DataConfig.model_validate(self.manifest.data).more
            added = [Portion(pairs[f"{MORE}{name}"], each.share) for name, each in more.items()]
        except (ValidationError, KeyError) as error:
            raise PreparedDataError(f"{self.folder / MANIFEST}: damaged") from error
        return (Portion(pairs[TRAIN], 1.0), *added) if added else ()

    def _check_has(self, name: str) -> None:
        known = [split for split in self.manifest.pairs if not split.startswith(MORE)]
        if name not in known:
            raise DataError(f"{self.folder}: no split '{name}'; it has {', '.join(known)}")


def open_prepared(folder: Path, config: Config | None = None, *, verify: bool = True) -> Prepared:
    """The prepared data in `folder`, made for `config` if one is given; `verify` checks every file's hash.

    Raises:
        PreparedDataError: nothing is prepared there, a file is missing, altered or damaged, or `config` asks
            for something else.
    """
    recover(folder)
    path = folder / MANIFEST
    if not path.exists():
        raise PreparedDataError(f"{folder}: no prepared data")
    try:
        manifest = Manifest.model_validate(read_json(path))
        if verify:
            check_hashes(folder, manifest.outputs)
    except DataError as error:
        raise PreparedDataError(str(error)) from error
    except ValidationError as error:
        raise PreparedDataError(f"{path}: damaged, or of another version of mt-cli") from error
    if config is not None and (differences := manifest.differing_keys(config)):
        raise PreparedDataError(f"{folder}: prepared with another config: {'; '.join(differences)}")
    return Prepared(folder, manifest)


def complete_prepared(folder: Path, config: Config, *, inputs: dict[str, str], report: CorpusReport) -> None:
    """Write the report and the manifest of the files in `folder`, which are made of `inputs`."""
    write_json(folder / REPORT, report.as_json())
    manifest = Manifest(
        data=config.data.model_dump(mode="json"),
        tokenizer=config.tokenizer.model_dump(mode="json"),
        inputs=inputs,
        outputs=sha256_of_files(folder),
        pairs={name: split.pairs for name, split in report.splits.items()},
        dropped={name: split.dropped for name, split in report.splits.items()},
    )
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))


# A split's files


def lines_path(folder: Path, split: str, side: Side) -> Path:
    """Path of the raw lines of a side."""
    return folder / f"{split}.{side}.txt"


def _array_paths(folder: Path, split: str, side: Side) -> tuple[Path, Path]:
    """Paths of the ids of a side and of their offsets."""
    return folder / f"{split}.{side}.npy", folder / f"{split}.{side}.offsets.npy"


def open_split(folder: Path, split: str) -> EncodedSplit:
    """The encoded pairs of `split`, memory-mapped.

    Raises:
        DataError: a file is missing or is no such array.
    """
    src, tgt = (_open_side(*_array_paths(folder, split, side)) for side in SIDES)
    if len(src) != len(tgt):
        raise DataError(f"{folder}: {split} has {len(src):,} sources, but {len(tgt):,} targets")
    return EncodedSplit(src, tgt)


def _open_side(ids_path: Path, offsets_path: Path) -> Sentences:
    ids = cast("IdArray", _map(ids_path, np.uint16, np.int32))
    offsets = cast("NDArray[np.int64]", _map(offsets_path, np.int64))
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids) or bool((np.diff(offsets) < 0).any()):
        raise DataError(f"{offsets_path}: not where the sentences of {len(ids):,} ids begin; prepare again")
    return Sentences(ids, offsets)


def _map(path: Path, *types: type[np.generic]) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as an array ({error}); prepare the data again") from error
    if array.dtype.type not in types or array.ndim != 1:
        raise DataError(f"{path}: {array.dtype} numbers of shape {array.shape} are not what belongs there")
    return array


@dataclass(frozen=True)
class EncodedPairs:
    """Some raw pairs, encoded."""

    split: EncodedSplit
    kept: list[tuple[bytes, bytes]]
    """The raw lines of `split`, without their line ends."""
    dropped: Counter[str]
    """Pairs left out, by reason."""


class SplitWriter:
    """Files of one split, filled piece by piece; complete after its `with` block."""

    def __init__(self, folder: Path, split: str, *, src_type: IdType, tgt_type: IdType) -> None:
        self._files = []
        for side, kind in zip(SIDES, (src_type, tgt_type), strict=True):
            ids_path, offsets_path = _array_paths(folder, split, side)
            ids, offsets = _ArrayFile(ids_path, np.dtype(kind)), _ArrayFile(offsets_path, np.dtype(np.int64))
            offsets.append(np.zeros(1, np.int64))
            self._files.append((ids, offsets, lines_path(folder, split, side).open("wb")))

    def write(self, pairs: EncodedPairs) -> None:
        """Append `pairs`: their ids and their raw lines."""
        sides = (pairs.split.src, pairs.split.tgt)
        for place, (sentences, files) in enumerate(zip(sides, self._files, strict=True)):
            ids, offsets, lines = files
            offsets.append(sentences.offsets[1:] + ids.length)
            ids.append(sentences.ids)
            lines.write(b"".join(pair[place] + b"\n" for pair in pairs.kept))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (file for files in self._files for file in files):
            file.close()


class _ArrayFile:
    """A one-dimensional .npy file whose length is known only at the end."""

    def __init__(self, path: Path, dtype: np.dtype[np.generic]) -> None:
        self.length = 0
        self._dtype = dtype
        self._file = path.open("wb")
        self._write_header()
        self._data_begin = self._file.tell()

    def append(self, values: NDArray[np.generic]) -> None:
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()
        # NumPy leaves room in the header for the first axis to grow.
        assert self._file.tell() == self._data_begin
        self._file.close()

    def _write_header(self) -> None:
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)
