"""Prepared data: a folder with encoded splits, raw lines, tokenizers, and a manifest of hashes.

manifest.json  report.json  tokenizer/
<split>.<side>.npy           flat ids, memory-mapped
<split>.<side>.offsets.npy   offsets of the sentences
<split>.<side>.txt           the corpus's original lines
shard-1-of-4/ …              the same for a share of the training text; see `shards`
"""

import functools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mt_cli.config.load import differences
from mt_cli.config.schema import AUGMENT, MORE, TRAIN, Config, DataConfig, Side, TokenizerConfig
from mt_cli.data.encoded import (
    IDS_TOGETHER,
    EncodedSplit,
    Sentences,
    TrainingLengths,
    lines_path,
    open_split,
)
from mt_cli.errors import DataError, PreparedDataError, UsageError
from mt_cli.machine.files import (
    MANIFEST,
    MAX_TEXT_BYTES,
    check_hashes,
    parsed,
    read_file,
    recover,
    sha256_bytes,
)
from mt_cli.machine.terminal import table_text
from mt_cli.machine.workers import raise_file_limit
from mt_cli.text.normalize import decode_line
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers

PERCENTILES = (50, 90, 99, 100)


class SideReport(BaseModel):
    """One side of a split, as encoded."""

    tokens: int
    unknown: int
    """Tokens that are `<unk>` or a single byte."""
    unknown_rate: float
    lengths: dict[str, int]
    """Percentiles of tokens per line: half of the lines have at most `lengths["50"]` tokens."""

    @staticmethod
    def of(sentences: Sentences, unknown_ids: Sequence[int]) -> "SideReport":
        """Count lengths and unknown tokens of encoded lines, which must be in one array."""
        ((all_ids, offsets),) = sentences.arrays
        ids = all_ids[offsets[0] : offsets[-1]]
        places = range(0, len(ids), IDS_TOGETHER)
        unknown = sum(int(np.isin(ids[i : i + IDS_TOGETHER], unknown_ids).sum()) for i in places)
        # "higher" gives the length of some line, never one between two.
        found = [0] * len(PERCENTILES)
        if len(sentences):
            found = np.percentile(sentences.lengths, PERCENTILES, method="higher").tolist()
        return SideReport(
            tokens=len(ids),
            unknown=unknown,
            unknown_rate=unknown / max(1, len(ids)),
            lengths={str(p): int(length) for p, length in zip(PERCENTILES, found, strict=True)},
        )


class SplitReport(BaseModel):
    """The report on a split."""

    lines: int
    """Lines in the input files."""
    pairs: int
    """Pairs kept."""
    dropped: dict[str, int]
    """Dropped pairs, by reason; only in training data."""
    invalid_utf8: int
    """Lines with a side that is not valid UTF-8; the invalid bytes are skipped."""
    duplicates: int
    """Lines whose normalized pair repeats an earlier line."""
    src_in_train: int | None
    """Lines whose source also occurs in the training pairs (for additional pairs: in the corpus's
    own); None for `train`, and for all training pairs once shards are joined.
    """
    pairs_in_train: int | None
    """Lines whose pair also occurs in these training pairs; None as above."""
    src: SideReport
    tgt: SideReport

    @staticmethod
    def total(parts: "Sequence[SplitReport]") -> "SplitReport":
        """The report on all `parts`; percentiles of lengths are the maximum of the parts.

        Repetitions across parts are not counted.
        """
        total = _summed([part.model_dump() for part in parts])
        for side in ("src", "tgt"):
            total[side]["unknown_rate"] = total[side]["unknown"] / max(1, total[side]["tokens"])
            lengths: dict[str, int] = {}
            for part in parts:
                for percentile, length in getattr(part, side).lengths.items():
                    lengths[percentile] = max(length, lengths.get(percentile, 0))
            total[side]["lengths"] = lengths
        total["src_in_train"] = total["pairs_in_train"] = None
        return SplitReport.model_validate(total)


def _summed(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of the numbers in nested `tables`; None stays None."""
    total: dict[str, Any] = {}
    for key in dict.fromkeys(chain.from_iterable(tables)):
        values = [table[key] for table in tables if key in table]
        if isinstance(values[0], dict):
            total[key] = _summed(values)
        else:
            total[key] = None if values[0] is None else sum(values)
    return total


class CorpusReport(BaseModel):
    """The report of `prepare` on a corpus."""

    src_vocab_size: int
    tgt_vocab_size: int
    splits: dict[str, SplitReport]

    def as_text(self) -> str:
        """A table with one row per split, followed by notes on dropped pairs."""
        rows = []
        for name, split in self.splits.items():
            lengths = ["/".join(map(str, each.lengths.values())) for each in (split.src, split.tgt)]
            unknown = [f"{each.unknown_rate:.2%}" for each in (split.src, split.tgt)]
            rows.append((name, f"{split.lines:,}", f"{split.pairs:,}", *lengths, *unknown))
        head = ("split", "lines", "pairs", "src tokens", "tgt tokens", "<unk> src", "tgt")
        shares = "/".join(map(str, PERCENTILES))
        legend = (
            f"(tokens per line: {shares} % of lines have at most this many; single bytes count as "
            "<unk>)"
        )
        vocabulary = f"vocabulary  src {self.src_vocab_size:,}  tgt {self.tgt_vocab_size:,}"
        return "\n".join([table_text(head, rows), legend, vocabulary, *self._notes()])

    def _notes(self) -> Iterator[str]:
        for name, split in self.splits.items():
            for reason, count in sorted(split.dropped.items()):
                yield f"{name}: {count:,} pairs dropped: {reason}"
            if split.invalid_utf8:
                yield f"{name}: {split.invalid_utf8:,} lines are not valid UTF-8"
            if split.duplicates:
                yield f"{name}: {split.duplicates:,} lines repeat an earlier pair"
            if split.src_in_train:
                yield (
                    f"{name}: {split.src_in_train:,} sources occur in train "
                    f"({split.pairs_in_train:,} with the same target)"
                )


REPORT = "report.json"
SHARD = re.compile(r"shard-([1-9]\d*)(?:-of-([1-9]\d*))?", re.ASCII)
"""The name of a shard's folder; appended shards have no total number."""
TRAIN_FILES = (f"{TRAIN}.src.", f"{TRAIN}.tgt.", "shard-")
"""Prefixes of the training text's files and folders."""
OPEN_FILES = 4
"""Number of memory-mapped files per split."""
HASHES_FOLDER = "hashes"
"""Folder in a shard with sorted hashes of sources and of pairs, (2, N), for each part."""


class Manifest(BaseModel):
    """`manifest.json`: the contents, and the files and options that they were prepared from."""

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal[2] = 2
    data: DataConfig
    tokenizer: TokenizerConfig
    inputs: dict[str, str]
    """sha256 of the corpus files, by `<split>.<side>`, and of a given tokenizer's."""
    outputs: dict[str, str]
    """sha256 of the other files in this folder, by relative path."""
    pairs: dict[str, Annotated[int, Field(ge=0)]]
    """Number of pairs per split; the files of `train` also contain each `train+<name>`."""
    lengths: TrainingLengths = TrainingLengths()
    """Lengths in the pairs of `train`."""
    shard: str | None = None
    """The share of the training text in this folder, such as 3/16, or 17 for an appended shard;
    None is all of it.
    """
    shards: list[Annotated[str, Field(pattern=rf"^{SHARD.pattern}$")]] = []
    """The folders of the shards of `train`; empty if this folder has all of it."""
    num_sentences: dict[str, int] = {}
    """For a shard: approximate number of training lines, by number of sentences."""


@dataclass(frozen=True)
class Prepared:
    """An opened folder of prepared data."""

    folder: Path
    manifest: Manifest

    @staticmethod
    def of(folder: Path) -> "Prepared":
        """The data in `folder`; reads only the manifest."""
        path = folder / MANIFEST
        return Prepared(folder, parsed(Manifest, read_file(path), path))

    @property
    def sha256(self) -> str:
        """Identifies the content, independent of the folder's path."""
        content = {name: digest for name, digest in self.manifest.outputs.items() if name != REPORT}
        return sha256_bytes(json.dumps(content, sort_keys=True).encode())

    def continues(self, sha256: str) -> bool:
        """Whether this is the data `sha256`, possibly with more shards appended."""
        outputs = dict(self.manifest.outputs)
        for name in reversed(self.manifest.shards):
            manifest = self.manifest.model_copy(update={"outputs": outputs})
            if replace(self, manifest=manifest).sha256 == sha256:
                return True
            del outputs[f"{name}/{MANIFEST}"]
        return self.sha256 == sha256

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of both sides."""
        names = [name for name in self.manifest.outputs if name.startswith(f"{TOKENIZER_FOLDER}/")]
        return Tokenizers.read(self.folder / name for name in names)

    def differing_keys(self, config: Config) -> list[str]:
        """The keys of [data] and [tokenizer] that differ in `config`, with both values."""
        stored = {"data": self.manifest.data, "tokenizer": self.manifest.tokenizer}
        return [
            f"{key} was {json.dumps(was)}, now {json.dumps(now)}"
            for key, (was, now) in differences(config.model_copy(update=stored), config).items()
        ]

    @functools.cached_property
    def shards(self) -> "list[Prepared]":
        """The folders with the training text, in order: this one, or its shards."""
        folders = [self.folder / name for name in self.manifest.shards]
        return list(map(Prepared.of, folders)) or [self]

    def split(self, name: str) -> EncodedSplit:
        """Encoded pairs of split `name`, memory-mapped; `train` includes additional pairs."""
        self._check_has(name)
        shares = {name: 1.0}
        if name == TRAIN:
            for more_name, more in self.manifest.data.more.items():
                shares[f"{MORE}{more_name}"] = more.share
            if self.manifest.data.augment.shares:
                shares[AUGMENT] = self.manifest.data.augment.share
        parts: dict[str, list[EncodedSplit]] = {part: [] for part in shares}
        shards = self.shards if name == TRAIN else [self]
        raise_file_limit(OPEN_FILES * len(shards))
        for shard in shards:
            split = open_split(shard.folder, name)
            begin = 0
            for part, of_part in parts.items():
                end = begin + shard.manifest.pairs.get(part, 0)
                of_part.append(split.between(begin, end))
                begin = end
            if begin != len(split):
                raise PreparedDataError(
                    f"{shard.folder}: {name} does not have the {begin:,} pairs in {MANIFEST}",
                    shard.folder,
                )
        joined = EncodedSplit.joined(list(chain.from_iterable(parts.values())))
        if len(shares) == 1:
            return joined
        sizes = [sum(map(len, of_part)) for of_part in parts.values()]
        return replace(joined, portions=tuple(zip(sizes, shares.values(), strict=True)))

    def lines(self, name: str, side: Side) -> list[str]:
        """The corpus's original lines of split `name`; line i belongs to pair i."""
        self._check_has(name)
        if name == TRAIN and self.manifest.shards:
            of_shards = (shard.lines(name, side) for shard in self.shards)
            return list(chain.from_iterable(of_shards))
        path = lines_path(self.folder, name, side)
        raw = read_file(path, max_bytes=MAX_TEXT_BYTES).split(b"\n")[:-1]
        expected = self.manifest.pairs[name]
        has_added = name == TRAIN  # additional pairs follow
        if len(raw) < expected or (len(raw) > expected and not has_added):
            raise PreparedDataError(
                f"{path}: {len(raw):,} lines, but {MANIFEST} says {expected:,}", self.folder
            )
        return [decode_line(line) for line in raw[:expected]]

    def report(self) -> CorpusReport:
        """Read the stored report."""
        path = self.folder / REPORT
        return parsed(CorpusReport, read_file(path), path)

    def _check_has(self, name: str) -> None:
        own_splits = [split for split in self.manifest.pairs if not split.startswith(MORE)]
        if name not in own_splits:
            raise DataError(f"{self.folder}: no split '{name}'; it has {', '.join(own_splits)}")


def open_prepared(folder: Path, config: Config | None = None, *, verify: bool = True) -> Prepared:
    """Open the prepared data in `folder`, which must fit `config` if given.

    `verify` also checks the hashes of the training text, about a second for a few gigabytes.

    Raises:
        PreparedDataError: there is no prepared data, a file is missing, altered or damaged, or the
            data was prepared for another config.
    """
    recover(folder)
    if not (folder / MANIFEST).exists():
        shards = ", only shards; join them" if shards_in(folder) else ""
        raise PreparedDataError(f"{folder}: no prepared data{shards}", folder)
    try:
        prepared = Prepared.of(folder)
        hashes = prepared.manifest.outputs
        if not verify:
            hashes = {name: of for name, of in hashes.items() if not name.startswith(TRAIN_FILES)}
        check_hashes(folder, hashes)
    except DataError as error:
        raise PreparedDataError(str(error), folder) from error
    for name in prepared.manifest.shards if verify else ():
        open_prepared(folder / name)
    different = [] if config is None else prepared.differing_keys(config)
    if different:
        raise PreparedDataError(
            f"{folder}: prepared for another config: {'; '.join(different)}", folder
        )
    return prepared


def shards_in(folder: Path) -> list[str]:
    """The names of the prepared shards in `folder`."""
    names = [path.parent.name for path in folder.glob(f"shard-*/{MANIFEST}")]
    shards = [name for name in names if SHARD.fullmatch(name)]
    return sorted(shards, key=lambda name: int(name.split("-")[1]))


def hashes_path(folder: Path, part: str) -> Path:
    """Path of a shard's hashes of a part of the corpus."""
    return folder / HASHES_FOLDER / f"{part}.npy"


def check_unneeded(folder: Path, needed_by: Sequence[Path]) -> None:
    """Refuse to replace the prepared data in `folder` if runs need it."""
    if needed_by:
        raise UsageError(
            f"{folder}: {needed_by[0]} was trained on it; rename the config, or use --force"
        )
