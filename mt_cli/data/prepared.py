"""Prepared data: a folder of encoded splits, raw lines and tokenizers, under a manifest of hashes.

manifest.json  report.json  tokenizer/ <split>.<side>.npy  <split>.<side>.offsets.npy     flat ids,
and where sentences begin: memory-mapped <split>.<side>.txt                                  the
corpus's own lines
"""

import errno
import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mt_cli.config.load import differences
from mt_cli.config.schema import (
    LONGEST,
    MORE,
    SIDES,
    TRAIN,
    Config,
    DataConfig,
    DecodingConfig,
    Side,
    TokenizerConfig,
)
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
    write_errors_named,
    write_json,
)
from mt_cli.machine.terminal import table_text
from mt_cli.text import UNK_ID
from mt_cli.text.normalize import decode_line
from mt_cli.text.tokenizer import Tokenizers

REPORT, TOKENIZER = "report.json", "tokenizer"
PERCENTILES = (50, 90, 99, 100)
LENGTHS_SHARE = 0.999
"""Share of the training pairs whose sources are no longer than `src_tokens`."""
FACTORS_SHARE = 0.99
"""Share of the training pairs whose targets, beside their sources, are no longer than those that
count.
"""
MARGIN = 1.5
"""How much longer a translation may be than those targets."""
COMMON = 0.05
"""Share of the lines of training that makes a number of sentences common."""
COUNTED_TOGETHER = 1 << 22
"""Ids read at a time, so that a memory-mapped corpus need not fit into memory."""
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

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> IdArray:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def of(sentences: Sequence[Sequence[int]]) -> "Sentences":
        """`sentences`, one after another."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum()))
        return Sentences(ids, np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))))


@dataclass(frozen=True)
class EncodedSplit:
    """Both sides of a split, line by line."""

    src: Sentences
    tgt: Sentences
    portions: tuple[tuple[int, float], ...] = ()
    """Part by part: number of pairs, and how often an epoch sees each of them on average."""

    def __len__(self) -> int:
        return len(self.src)


class TrainingLengths(BaseModel):
    """What a model has seen in training: how long lines are, and how much longer their
    translations.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    src_tokens: int = LONGEST
    """Nearly all source lines have at most so many tokens."""
    sentences: int = LONGEST
    """Source lines of so many sentences are common."""
    max_len_factor: float = 1.5
    """Nearly all targets have at most this many times their source's tokens, and a few more."""

    @staticmethod
    def of(split: EncodedSplit, num_sentences: Counter[int]) -> "TrainingLengths":
        """Those of the pairs `split`, whose source lines have `num_sentences`: lines by number."""
        src = split.src.lengths
        tgt = split.tgt.lengths
        factors = (tgt - DecodingConfig().max_len_extra) / np.maximum(src, 1)
        # "higher" gives what some line has, never a value between two.
        longest = np.quantile(src, LENGTHS_SHARE, method="higher")
        factor = MARGIN * np.quantile(factors, FACTORS_SHARE, method="higher")
        common = 1
        num_lines = 0
        for number in sorted(num_sentences, reverse=True):
            num_lines += num_sentences[number]
            if num_lines >= COMMON * num_sentences.total():
                common = max(1, number)
                break
        return TrainingLengths(
            src_tokens=int(longest),
            sentences=common,
            max_len_factor=max(TrainingLengths().max_len_factor, round(float(factor), 2)),
        )


# The report


@dataclass(frozen=True)
class SideReport:
    """One side of a split, as encoded."""

    tokens: int
    unknown: int
    """Tokens that are `<unk>`."""
    unknown_rate: float
    lengths: dict[str, int]
    """Percentiles of tokens per line: half of the lines have at most `lengths["50"]`."""

    @staticmethod
    def of(sentences: Sentences, begin: int, end: int) -> "SideReport":
        """Lengths and unknown tokens of the encoded lines `begin` to `end` - 1."""
        offsets = sentences.offsets[begin : end + 1]
        ids = sentences.ids[offsets[0] : offsets[-1]]
        places = range(0, len(ids), COUNTED_TOGETHER)
        unknown = sum(int((ids[i : i + COUNTED_TOGETHER] == UNK_ID).sum()) for i in places)
        # "higher" gives a length that some line has, never one between two.
        found = (
            np.percentile(np.diff(offsets), PERCENTILES, method="higher")
            if end > begin
            else [0] * 4
        )
        return SideReport(
            tokens=len(ids),
            unknown=unknown,
            unknown_rate=unknown / max(1, len(ids)),
            lengths={str(p): int(length) for p, length in zip(PERCENTILES, found, strict=True)},
        )


@dataclass(frozen=True)
class SplitReport:
    """One split."""

    lines: int
    """Lines of the input files."""
    pairs: int
    """Pairs kept."""
    dropped: dict[str, int]
    """Pairs left out, by reason; none outside the training data."""
    invalid_utf8: int
    """Lines with a side that is not valid UTF-8; their invalid bytes are left out."""
    duplicates: int
    """Lines whose normalised pair is on an earlier line too."""
    src_in_train: int | None
    """Lines whose source is in the training pairs (for an added part: the corpus's own); None for
    `train`.
    """
    pairs_in_train: int | None
    """Lines whose source and target are together in the same training pairs; None for `train`."""
    src: SideReport
    tgt: SideReport


@dataclass(frozen=True)
class CorpusReport:
    """What `prepare` found in a corpus and made of it."""

    src_vocab_size: int
    tgt_vocab_size: int
    splits: dict[str, SplitReport]

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


class Manifest(BaseModel):
    """`manifest.json`: what was prepared, and from which files and options."""

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal[1] = 1
    data: DataConfig
    tokenizer: TokenizerConfig
    inputs: dict[str, str]
    """sha256 of the corpus files, by `<split>.<side>`."""
    outputs: dict[str, str]
    """sha256 of the files beside this one, by relative path."""
    pairs: dict[str, Annotated[int, Field(ge=0)]]
    """Pairs of each split. The files of `train` hold its own pairs, then those of each
    `train+<name>`.
    """
    lengths: TrainingLengths = TrainingLengths()
    """Of the pairs of `train`."""


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
        paths = [
            self.folder / name for name in self.manifest.outputs if name.startswith(f"{TOKENIZER}/")
        ]
        try:
            return Tokenizers.from_files({path.name: read_file(path) for path in paths})
        except DataError as error:
            raise PreparedDataError(f"{self.folder / TOKENIZER}: {error}") from error

    def differing_keys(self, config: Config) -> list[str]:
        """Each key of [data] and [tokenizer] that `config` sets to another value."""
        stored = {"data": self.manifest.data, "tokenizer": self.manifest.tokenizer}
        return [
            f"{key} was {json.dumps(was)}, is {json.dumps(now)}"
            for key, (was, now) in differences(config.model_copy(update=stored), config).items()
        ]

    def split(self, name: str) -> EncodedSplit:
        """Encoded pairs of split `name`, memory-mapped; `train` includes the pairs that the config
        adds.
        """
        self._check_has(name)
        split = open_split(self.folder, name)
        pairs, more = self.manifest.pairs, self.manifest.data.more if name == TRAIN else {}
        added = [(pairs.get(f"{MORE}{each}", 0), options.share) for each, options in more.items()]
        portions = ((pairs[name], 1.0), *added)
        expected = sum(size for size, _ in portions)
        if len(split) != expected:
            raise PreparedDataError(
                f"{self.folder}: {name} has {len(split):,} pairs, but {MANIFEST} says {expected:,}"
            )
        return replace(split, portions=portions if added else ())

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
            return TypeAdapter(CorpusReport).validate_json(read_file(path))
        except (DataError, ValidationError) as error:
            again = command_line("prepare", "CONFIG", "--force")
            raise PreparedDataError(
                f"{path}: missing or damaged; to make it anew: {again}"
            ) from error

    def _check_has(self, name: str) -> None:
        known = [split for split in self.manifest.pairs if not split.startswith(MORE)]
        if name not in known:
            raise DataError(f"{self.folder}: no split '{name}'; it has {', '.join(known)}")


def open_prepared(folder: Path, config: Config | None = None, *, verify: bool = True) -> Prepared:
    """The prepared data in `folder`, made for `config` if one is given; `verify` checks every
    file's hash.

    Raises:
        PreparedDataError: nothing is prepared there, a file is missing, altered or damaged, or
            `config` asks for something else.
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
    prepared = Prepared(folder, manifest)
    if config is not None and (different := prepared.differing_keys(config)):
        raise PreparedDataError(f"{folder}: prepared with another config: {'; '.join(different)}")
    return prepared


def complete_prepared(
    folder: Path,
    config: Config,
    *,
    inputs: dict[str, str],
    report: CorpusReport,
    lengths: TrainingLengths,
) -> None:
    """Write the report and the manifest of the files in `folder`, which are made of `inputs`."""
    write_json(folder / REPORT, asdict(report))
    manifest = Manifest(
        data=config.data,
        tokenizer=config.tokenizer,
        inputs=inputs,
        outputs=sha256_of_files(folder),
        pairs={name: split.pairs for name, split in report.splits.items()},
        lengths=lengths,
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
    if (
        not len(offsets)
        or offsets[0] != 0
        or offsets[-1] != len(ids)
        or bool((np.diff(offsets) < 0).any())
    ):
        raise DataError(
            f"{offsets_path}: not where the sentences of {len(ids):,} ids begin; prepare again"
        )
    return Sentences(ids, offsets)


CANNOT_MAP = (errno.ENODEV, errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENOSYS)
"""Errors of file systems from which nothing can be mapped into memory, as some of FUSE's."""


def _map(path: Path, *types: type[np.generic]) -> NDArray[np.generic]:
    try:
        try:
            array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
        except OSError as error:
            if error.errno not in CANNOT_MAP:
                raise
            array = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read as an array ({error}); prepare the data again"
        ) from error
    if array.dtype.type not in types or array.ndim != 1:
        raise DataError(
            f"{path}: {array.dtype} numbers of shape {array.shape} are not what belongs there"
        )
    return array


@dataclass(frozen=True)
class EncodedPairs:
    """Some raw pairs, encoded."""

    split: EncodedSplit
    kept: list[tuple[bytes, bytes]]
    """The raw lines of `split`, without their line ends."""
    too_long: int
    """Pairs that were left out."""


def write_split(
    folder: Path, split: str, parts: Iterable[EncodedPairs], types: Sequence[IdType]
) -> None:
    """Write `parts`, one after another, as the files of `split`, ids of both sides in their
    `types`.

    Of all pairs, only the lengths are held in memory.
    """
    lengths: list[list[NDArray[np.int64]]] = [[np.zeros(1, np.int64)] for _ in SIDES]
    with ExitStack() as stack:
        ids = [
            stack.enter_context(_array_paths(folder, split, side)[0].open("wb")) for side in SIDES
        ]
        lines = [stack.enter_context(lines_path(folder, split, side).open("wb")) for side in SIDES]
        with write_errors_named(folder):
            for file, kind in zip(ids, types, strict=True):
                _write_header(file, kind, length=0)
        for part in parts:
            with write_errors_named(folder):
                for i, sentences in enumerate((part.split.src, part.split.tgt)):
                    ids[i].write(sentences.ids.astype(types[i], copy=False).tobytes())
                    lengths[i].append(sentences.lengths)
                    lines[i].write(b"".join(pair[i] + b"\n" for pair in part.kept))
        with write_errors_named(folder):
            for i, side in enumerate(SIDES):
                offsets = np.cumsum(np.concatenate(lengths[i]))
                np.save(_array_paths(folder, split, side)[1], offsets)
                ids[i].seek(0)
                _write_header(ids[i], types[i], length=int(offsets[-1]))
            for file in (
                *ids,
                *lines,
            ):  # here, where the first error is told; closed together, the last is
                file.flush()


def _write_header(file: BinaryIO, kind: IdType, *, length: int) -> None:
    """Begin a .npy file. NumPy leaves room for the length to grow, so it can be written again."""
    descr = np.lib.format.dtype_to_descr(np.dtype(kind))
    header = {"descr": descr, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)
