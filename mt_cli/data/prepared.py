"""Prepared data: a folder of encoded splits, raw lines and tokenizers, under a manifest of hashes.

manifest.json  report.json  tokenizer/
<split>.<side>.npy           flat ids, memory-mapped
<split>.<side>.offsets.npy   where sentences begin
<split>.<side>.txt           the corpus's own lines
"""

import functools
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mt_cli.config.load import differences
from mt_cli.config.messages import command_line
from mt_cli.config.schema import (
    AUGMENT,
    MORE,
    TRAIN,
    Config,
    DataConfig,
    Side,
    TokenizerConfig,
)
from mt_cli.data.encoded import EncodedSplit, lines_path, open_split
from mt_cli.data.lengths import TrainingLengths
from mt_cli.data.report import CorpusReport
from mt_cli.errors import DataError, PreparedDataError
from mt_cli.machine.files import (
    MANIFEST,
    MAX_TEXT_BYTES,
    check_hashes,
    read_file,
    read_json,
    recover,
    sha256_bytes,
    sha256_of_files,
    write_json,
)
from mt_cli.text.normalize import decode_line
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers

REPORT = "report.json"


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
    """Pairs of each split. The files of `train` also hold those of each `train+<name>`."""
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
            self.folder / name
            for name in self.manifest.outputs
            if name.startswith(f"{TOKENIZER_FOLDER}/")
        ]
        try:
            return Tokenizers.from_files({path.name: read_file(path) for path in paths})
        except DataError as error:
            raise PreparedDataError(f"{self.folder / TOKENIZER_FOLDER}: {error}") from error

    def differing_keys(self, config: Config) -> list[str]:
        """Each key of [data] and [tokenizer] that `config` sets to another value."""
        stored = {"data": self.manifest.data, "tokenizer": self.manifest.tokenizer}
        return [
            f"{key} was {json.dumps(was)}, is {json.dumps(now)}"
            for key, (was, now) in differences(config.model_copy(update=stored), config).items()
        ]

    def split(self, name: str) -> EncodedSplit:
        """Encoded pairs of split `name`, memory-mapped; `train` includes what the config adds."""
        self._check_has(name)
        split = open_split(self.folder, name)
        sizes = self.manifest.pairs
        portions = [(sizes[name], 1.0)]
        if name == TRAIN:
            for more_name, more in self.manifest.data.more.items():
                portions.append((sizes.get(f"{MORE}{more_name}", 0), more.share))
            if self.manifest.data.augment.shares:
                portions.append((sizes.get(AUGMENT, 0), self.manifest.data.augment.share))
        expected = sum(size for size, _ in portions)
        if len(split) != expected:
            raise PreparedDataError(
                f"{self.folder}: {name} has {len(split):,} pairs, but {MANIFEST} says {expected:,}"
            )
        return replace(split, portions=tuple(portions) if len(portions) > 1 else ())

    def lines(self, name: str, side: Side) -> list[str]:
        """The corpus's own lines of split `name`, not normalized; row i belongs to pair i."""
        self._check_has(name)
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
    """Open the prepared data in `folder`, which must fit `config` if one is given.

    `verify` checks the hash of every file.

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
