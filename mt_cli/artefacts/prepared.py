"""Prepared data: a folder of encoded splits, raw lines and tokenizers, under a manifest of hashes.

Knows what lies in the folder, not how it was made.
"""

import functools
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mt_cli.artefacts.corpora import MORE, TRAIN
from mt_cli.artefacts.exported_run import AnyRun
from mt_cli.artefacts.files import MANIFEST, check_hashes, is_there, read_file, sha256_bytes, sha256_file
from mt_cli.artefacts.folders import recover
from mt_cli.artefacts.json_files import SEAL, read_json, read_sealed, sealed, write_json
from mt_cli.artefacts.split_files import Side, lines_path, open_split
from mt_cli.config import Config, DataConfig, TokenizerConfig, table_differences
from mt_cli.data.report import CorpusReport
from mt_cli.data.split import EncodedSplit, Portion, Sentences
from mt_cli.errors import DataError, PreparedDataError, command_line
from mt_cli.text.normalize import decode_line
from mt_cli.text.tokenizer import Tokenizers

REPORT, TOKENIZER = "report.json", "tokenizer"
FORMAT: Literal[1] = 1
SEAL_COMMAND = f"{command_line('prepare', 'CONFIG')}, with the config that they were prepared with"
MOST_BYTES = 1 << 30
"""Of a file that is read as a whole."""


class Manifest(BaseModel):
    """`manifest.json`: what was prepared, and from which files and options."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    format: Literal[1] = FORMAT
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
        folder = self.folder / TOKENIZER
        names = [name for name in self.manifest.outputs if name.startswith(f"{TOKENIZER}/")]
        try:
            return Tokenizers.from_files(
                {
                    Path(name).name: read_file(self.folder / name, most=MOST_BYTES, below=self.folder)
                    for name in names
                }
            )
        except DataError as error:
            raise PreparedDataError(f"{folder}: {error}") from error

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
        self._check_ids(name, "src", split.src)
        self._check_ids(name, "tgt", split.tgt)
        return replace(split, portions=portions)

    def lines(self, name: str, side: Side) -> list[str]:
        """The corpus's own lines of split `name`, not normalised; row i belongs to pair i."""
        self._check_has(name)
        path = lines_path(self.folder, name, side)
        raw = read_file(path, most=MOST_BYTES).split(b"\n")[:-1]
        expected = self.manifest.pairs[name]
        if len(raw) < expected:
            raise PreparedDataError(f"{path}: {len(raw):,} lines, but {MANIFEST} says {expected:,}")
        return [decode_line(line) for line in raw[:expected]]  # added pairs follow

    def report(self) -> CorpusReport:
        """The report that was stored when the data were prepared."""
        path = self.folder / REPORT
        try:
            return CorpusReport.model_validate_json(read_file(path, most=MOST_BYTES))
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

    def _check_ids(self, name: str, side: Side, sentences: Sentences) -> None:
        vocab_size = (self.tokenizers.src if side == "src" else self.tokenizers.tgt).vocab_size
        ids = sentences.ids
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
            raise PreparedDataError(f"{self.folder}: {name}.{side} has ids that its vocabulary lacks")

    def _check_has(self, name: str) -> None:
        known = [split for split in self.manifest.pairs if not split.startswith(MORE)]
        if name not in known:
            raise DataError(f"{self.folder}: no split '{name}'; it has {', '.join(known)}")


def open_prepared(folder: Path, *, verify: bool = True, warns: bool = True) -> Prepared:
    """The prepared data in `folder`; `verify` compares every file with its hash.

    `warns` says whether to warn of a manifest without a seal.

    Raises:
        PreparedDataError: nothing is prepared there, or a file is missing, altered or damaged.
    """
    recover(folder)
    path = folder / MANIFEST
    if not is_there(path):
        raise PreparedDataError(f"{folder}: no prepared data")
    try:
        document = read_sealed(
            path, early_keys=Manifest.model_fields, below=folder, warns=warns, seal_command=SEAL_COMMAND
        )
        manifest = Manifest.model_validate(document)
        if verify:
            check_hashes(folder, manifest.outputs)
    except DataError as error:
        raise PreparedDataError(str(error)) from error
    except ValidationError as error:
        raise PreparedDataError(f"{path}: damaged, or of another version of mt-cli") from error
    return Prepared(folder, manifest)


def open_prepared_of(run: AnyRun, folder: Path | None = None, *, otherwise: str = "") -> Prepared:
    """The prepared data that `run` was trained on, in `folder` if they have moved.

    `otherwise` is added to the error for missing data; it tells users how to do without them.

    Raises:
        DataError: the data are missing, or are not those of `run`.
    """
    place = folder or Path(run.prepared.folder)
    if not os.path.isdir(place):  # noqa: PTH112 — a name may be too long
        raise DataError(
            f"{place}: the data that {run.folder} was trained on are not here; say where with --data DIR"
            f"{otherwise}"
        )
    try:
        prepared = open_prepared(place)
    except PreparedDataError as error:
        raise DataError(
            f"{error}; say with --data DIR where the data of {run.folder} are{otherwise}"
        ) from error
    if prepared.sha256 != run.prepared.sha256:
        raise DataError(
            f"{place}: not the data that {run.folder} was trained on (prepared anew since?); "
            "name the right folder with --data DIR"
        )
    return prepared


def complete_prepared(folder: Path, config: Config, *, inputs: dict[str, str], report: CorpusReport) -> None:
    """Write the report and the manifest of the files in `folder`, which are made of `inputs`."""
    write_json(folder / REPORT, report.as_json())
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = Manifest(
        data=config.data.model_dump(mode="json"),
        tokenizer=config.tokenizer.model_dump(mode="json"),
        inputs=inputs,
        outputs={path.relative_to(folder).as_posix(): sha256_file(path) for path in files},
        pairs={name: split.pairs for name, split in report.splits.items()},
        dropped={name: split.dropped for name, split in report.splits.items()},
    )
    write_json(folder / MANIFEST, sealed(manifest.model_dump(mode="json")))


def seal_prepared(prepared: Prepared) -> None:
    """Seal the manifest of data that an early version prepared."""
    path = prepared.folder / MANIFEST
    manifest = read_json(path)
    if SEAL not in manifest:
        write_json(path, sealed(manifest))


def check_prepared_for(prepared: Prepared, config: Config) -> None:
    """Make sure that `config` asks for what was prepared.

    Raises:
        PreparedDataError: naming the keys that differ.
    """
    differences = differing_keys(prepared.manifest, config)
    if differences:
        raise PreparedDataError(f"{prepared.folder}: prepared with another config: {'; '.join(differences)}")


def differing_keys(manifest: Manifest, config: Config) -> list[str]:
    """Each key of [data] and [tokenizer] that `config` sets to another value."""
    stored = {  # an option that is not stored had its default
        "data": DataConfig().model_dump(mode="json") | manifest.data,
        "tokenizer": TokenizerConfig().model_dump(mode="json") | manifest.tokenizer,
    }
    wanted = config.model_dump(mode="json", include=set(stored))
    return [
        f"{path} was {json.dumps(was)}, is {json.dumps(now)}"
        for path, (was, now) in table_differences(stored, wanted).items()
    ]
