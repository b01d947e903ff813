"""Prepared data: a folder of encoded splits, raw lines and tokenizers, under a manifest of hashes.

manifest.json  report.json  tokenizer/
<split>.<side>.npy           flat ids, memory-mapped
<split>.<side>.offsets.npy   where sentences begin
<split>.<side>.txt           the corpus's own lines
shard-1-of-4/ …              the same again, of a share of the training text; see `shards`
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
from mt_cli.config.schema import (
    AUGMENT,
    MORE,
    TRAIN,
    Config,
    DataConfig,
    Side,
    TokenizerConfig,
)
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
from mt_cli.machine.workers import allow_files
from mt_cli.text.normalize import decode_line
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers

PERCENTILES = (50, 90, 99, 100)


class SideReport(BaseModel):
    """One side of a split, as encoded."""

    tokens: int
    unknown: int
    """Tokens that are `<unk>`, or a byte of a letter that no subword has."""
    unknown_rate: float
    lengths: dict[str, int]
    """Percentiles of tokens per line: half of the lines have at most `lengths["50"]`."""

    @staticmethod
    def of(sentences: Sentences, unknown_ids: Sequence[int]) -> "SideReport":
        """Lengths and unknown tokens of encoded lines, in one array."""
        ((all_ids, offsets),) = sentences.arrays
        ids = all_ids[offsets[0] : offsets[-1]]
        places = range(0, len(ids), IDS_TOGETHER)
        unknown = sum(int(np.isin(ids[i : i + IDS_TOGETHER], unknown_ids).sum()) for i in places)
        # "higher" gives a length that some line has, never one between two.
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
    """Lines whose normalized pair is on an earlier line too."""
    src_in_train: int | None
    """Lines whose source is in the training pairs (for an added part: the corpus's own); None for
    `train`.
    """
    pairs_in_train: int | None
    """Lines whose source and target are together in the same training pairs; None for `train`."""
    src: SideReport
    tgt: SideReport

    @staticmethod
    def total(parts: "Sequence[SplitReport]") -> "SplitReport":
        """The report on `parts` together; in percentiles of lengths, the longest of any part.

        What one part repeats of another is not known.
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
    """The sum of each number in `tables` of tables; of what is none, none."""
    total: dict[str, Any] = {}
    for key in dict.fromkeys(chain.from_iterable(tables)):
        values = [table[key] for table in tables if key in table]
        if isinstance(values[0], dict):
            total[key] = _summed(values)
        else:
            total[key] = None if values[0] is None else sum(values)
    return total


class CorpusReport(BaseModel):
    """What `prepare` found in a corpus and made of it."""

    src_vocab_size: int
    tgt_vocab_size: int
    splits: dict[str, SplitReport]

    def as_text(self) -> str:
        """A table, one line a split, and what was dropped below it."""
        rows = []
        for name, split in self.splits.items():
            lengths = ["/".join(map(str, each.lengths.values())) for each in (split.src, split.tgt)]
            unknown = [f"{each.unknown_rate:.2%}" for each in (split.src, split.tgt)]
            rows.append((name, f"{split.lines:,}", f"{split.pairs:,}", *lengths, *unknown))
        head = ("split", "lines", "pairs", "src tokens", "tgt tokens", "<unk> src", "tgt")
        shares = "/".join(map(str, PERCENTILES))
        legend = (
            f"(tokens of a line: {shares} % of the lines have at most so many; bytes of letters "
            "that no subword has count as <unk>)"
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
"""The name of a shard's folder; of one that was appended, without how many there are."""
TRAIN_FILES = (f"{TRAIN}.src.", f"{TRAIN}.tgt.", "shard-")
"""How the names of the training text's files and folders begin."""
OPEN_FILES = 4
"""Of a split, mapped into memory."""
HASHES_FOLDER = "hashes"
"""In a shard: by part of the corpus, sorted hashes of its sources and of its pairs, (2, N)."""


class Manifest(BaseModel):
    """`manifest.json`: what was prepared, and from which files and options."""

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal[2] = 2
    data: DataConfig
    tokenizer: TokenizerConfig
    inputs: dict[str, str]
    """sha256 of the corpus files, by `<split>.<side>`."""
    outputs: dict[str, str]
    """sha256 of the files beside this one, by relative path."""
    pairs: dict[str, Annotated[int, Field(ge=0)]]
    """Pairs of each split. The files of `train` also hold those of each `train+<name>`."""
    lengths: TrainingLengths = TrainingLengths()
    """Of the pairs of `train`."""
    shard: str | None = None
    """Which share of the training text this is, such as 3/16, or 17 where it was appended; None is
    all of it.
    """
    shards: list[Annotated[str, Field(pattern=rf"^{SHARD.pattern}$")]] = []
    """Folders of which each has a share of `train`; without any, this one has it."""
    num_sentences: dict[str, int] = {}
    """Of a shard: about as many training lines, by how many sentences they have."""


@dataclass(frozen=True)
class Prepared:
    """An opened folder of prepared data."""

    folder: Path
    manifest: Manifest

    @staticmethod
    def of(folder: Path) -> "Prepared":
        """The data in `folder`, of which only the manifest is read."""
        path = folder / MANIFEST
        return Prepared(folder, parsed(Manifest, read_file(path), path))

    @property
    def sha256(self) -> str:
        """Identifies the content, independent of the folder's place."""
        content = {name: digest for name, digest in self.manifest.outputs.items() if name != REPORT}
        return sha256_bytes(json.dumps(content, sort_keys=True).encode())

    def continues(self, sha256: str) -> bool:
        """Whether these are the data `sha256`, or those with further shards appended."""
        outputs = dict(self.manifest.outputs)
        for name in reversed(self.manifest.shards):
            manifest = self.manifest.model_copy(update={"outputs": outputs})
            if replace(self, manifest=manifest).sha256 == sha256:
                return True
            del outputs[f"{name}/{MANIFEST}"]
        return self.sha256 == sha256

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers."""
        paths = [
            self.folder / name
            for name in self.manifest.outputs
            if name.startswith(f"{TOKENIZER_FOLDER}/")
        ]
        return Tokenizers.from_files({path.name: read_file(path) for path in paths})

    def differing_keys(self, config: Config) -> list[str]:
        """Each key of [data] and [tokenizer] that `config` sets to another value."""
        stored = {"data": self.manifest.data, "tokenizer": self.manifest.tokenizer}
        return [
            f"{key} was {json.dumps(was)}, is {json.dumps(now)}"
            for key, (was, now) in differences(config.model_copy(update=stored), config).items()
        ]

    @functools.cached_property
    def shards(self) -> "list[Prepared]":
        """The folders that have the training text, in order: this one, or its shards."""
        folders = [self.folder / name for name in self.manifest.shards]
        return list(map(Prepared.of, folders)) or [self]

    def split(self, name: str) -> EncodedSplit:
        """Encoded pairs of split `name`, memory-mapped; `train` includes what the config adds."""
        self._check_has(name)
        shares = {name: 1.0}
        if name == TRAIN:
            for more_name, more in self.manifest.data.more.items():
                shares[f"{MORE}{more_name}"] = more.share
            if self.manifest.data.augment.shares:
                shares[AUGMENT] = self.manifest.data.augment.share
        parts: dict[str, list[EncodedSplit]] = {part: [] for part in shares}
        shards = self.shards if name == TRAIN else [self]
        allow_files(OPEN_FILES * len(shards))
        for shard in shards:
            split = open_split(shard.folder, name)
            begin = 0
            for part, of_part in parts.items():
                end = begin + shard.manifest.pairs.get(part, 0)
                of_part.append(split.between(begin, end))
                begin = end
            if begin != len(split):
                raise PreparedDataError(
                    f"{shard.folder}: {name} has not the {begin:,} pairs of {MANIFEST}"
                )
        whole = EncodedSplit.joined(list(chain.from_iterable(parts.values())))
        if len(shares) == 1:
            return whole
        sizes = [sum(map(len, of_part)) for of_part in parts.values()]
        return replace(whole, portions=tuple(zip(sizes, shares.values(), strict=True)))

    def lines(self, name: str, side: Side) -> list[str]:
        """The corpus's own lines of split `name`, not normalized; row i belongs to pair i."""
        self._check_has(name)
        if name == TRAIN and self.manifest.shards:
            of_shards = (shard.lines(name, side) for shard in self.shards)
            return list(chain.from_iterable(of_shards))
        path = lines_path(self.folder, name, side)
        raw = read_file(path, max_bytes=MAX_TEXT_BYTES).split(b"\n")[:-1]
        expected = self.manifest.pairs[name]
        has_added = name == TRAIN  # and added pairs follow
        if len(raw) < expected or (len(raw) > expected and not has_added):
            raise PreparedDataError(f"{path}: {len(raw):,} lines, but {MANIFEST} says {expected:,}")
        return [decode_line(line) for line in raw[:expected]]

    def report(self) -> CorpusReport:
        """The report that was stored when the data were prepared."""
        path = self.folder / REPORT
        return parsed(CorpusReport, read_file(path), path)

    def _check_has(self, name: str) -> None:
        known = [split for split in self.manifest.pairs if not split.startswith(MORE)]
        if name not in known:
            raise DataError(f"{self.folder}: no split '{name}'; it has {', '.join(known)}")


def open_prepared(folder: Path, config: Config | None = None, *, verify: bool = True) -> Prepared:
    """Open the prepared data in `folder`, which must fit `config` if one is given.

    `verify` checks the hashes of the training text too, which takes a second for some gigabytes.

    Raises:
        PreparedDataError: nothing is prepared there, a file is missing, altered or damaged, or
            `config` asks for something else.
    """
    recover(folder)
    if not (folder / MANIFEST).exists():
        shards = ", but shards that are to be joined" if shards_in(folder) else ""
        raise PreparedDataError(f"{folder}: no prepared data{shards}")
    try:
        prepared = Prepared.of(folder)
        hashes = prepared.manifest.outputs
        if not verify:
            hashes = {name: of for name, of in hashes.items() if not name.startswith(TRAIN_FILES)}
        check_hashes(folder, hashes)
        if verify:
            for name in prepared.manifest.shards:
                open_prepared(folder / name)
    except DataError as error:
        raise PreparedDataError(str(error)) from error
    if config is not None and (different := prepared.differing_keys(config)):
        raise PreparedDataError(f"{folder}: prepared with another config: {'; '.join(different)}")
    return prepared


def shards_in(folder: Path) -> list[str]:
    """The names of the shards that are prepared in `folder`."""
    names = [path.parent.name for path in folder.glob(f"shard-*/{MANIFEST}")]
    found = [name for name in names if SHARD.fullmatch(name)]
    return sorted(found, key=lambda name: int(name.split("-")[1]))


def hashes_path(folder: Path, part: str) -> Path:
    """Path of a shard's hashes of a part of the corpus."""
    return folder / HASHES_FOLDER / f"{part}.npy"


def check_unneeded(folder: Path, needed_by: Sequence[Path]) -> None:
    """Refuse to replace the prepared data in `folder` if runs need them."""
    if needed_by:
        raise UsageError(
            f"{folder}: {needed_by[0]} was trained on it; rename the config, or use --force"
        )
