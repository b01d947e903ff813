"""Exported models: folders that `export` wrote for CTranslate2, with all that translating needs.

Knows files and their names; never the engine that reads them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import get_args

from mt_cli.artefacts.files import MANIFEST, check_hashes, read_file, sha256_file, write_atomically
from mt_cli.artefacts.folders import recover
from mt_cli.artefacts.json_files import SEAL, parse_json, read_json, read_sealed, sealed, write_json
from mt_cli.artefacts.run import (
    MOST_CONFIG_BYTES,
    MOST_TOKENIZER_BYTES,
    TOKENIZER,
    Run,
    is_exported,
    model_shapes,
    open_runs,
    read_tokenizers,
)
from mt_cli.artefacts.run_manifest import CheckpointReference, PreparedReference
from mt_cli.artefacts.tensor_files import most_bytes
from mt_cli.config import RUN_CONFIG, Config, Quantization, config_of_bytes, dump_config
from mt_cli.errors import DataError, Option, UsageError, command_line
from mt_cli.text.tokenizer import Tokenizers

FORMAT, ENGINE = 1, "ctranslate2"
ENGINE_CONFIG = "config.json"


@dataclass(frozen=True)
class ExportedRun:
    """An opened exported model: one checkpoint of a run, which translates and does nothing else."""

    folder: Path
    config: Config
    """The run's, but for `[decoding] precision`: the engine computes in what the weights are stored as."""
    prepared: PreparedReference
    """The data that the run was trained on."""
    exported_from: CheckpointReference
    quantization: str
    """What matrices are stored as; `none` is float32."""
    sha256: Mapping[str, str]
    """sha256 of every file that translating loads, by relative path; already checked."""

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers."""
        return read_tokenizers(self.folder, self.sha256)

    @property
    def most_bytes(self) -> int:
        """The largest size of a file of the engine's: of the weights, and the waves of positions."""
        positions = (2, self.config.model.max_len, self.config.model.d_model)
        return most_bytes({**model_shapes(self.config.model, self.tokenizers), "positions": positions})

    def check_engine_files(self) -> None:
        """Make sure that the engine's config and vocabularies are what it will take them for.

        Raises:
            DataError: they are not.
        """
        read_json(self.folder / ENGINE_CONFIG, below=self.folder)
        src, tgt = self.tokenizers.src.entries, self.tokenizers.tgt.entries
        expected = {"shared": src, "source": src, "target": tgt}
        for side, entries in expected.items():
            path = self.folder / f"{side}_vocabulary.json"
            if path.name in self.sha256 and _read_list(path) != entries:
                raise DataError(f"{path}: not the vocabulary of {self.folder / TOKENIZER}; export it again")

    def resolve_checkpoint(self, name: str) -> str:
        """Name of the checkpoint that `name` means, of which there is one.

        Raises:
            UsageError: `name` means another one.
        """
        own = self.exported_from.checkpoint
        if name not in ("best", own):
            raise UsageError(
                f"{self.folder}: an exported model of {own}, without '{name}'; leave out ",
                Option("checkpoint"),
            )
        return own


AnyRun = Run | ExportedRun
"""What translates: a run, or a model that was exported from one."""


def complete_export(
    folder: Path, run: Run, *, quantization: str, checkpoint: CheckpointReference
) -> ExportedRun:
    """Write the config and the manifest beside what was made of the `checkpoint` of `run` in `folder`."""
    decoding = run.config.decoding.model_copy(update={"precision": "fp32"})
    config = run.config.model_copy(update={"decoding": decoding})
    write_atomically(folder / RUN_CONFIG, dump_config(config).encode())
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sha256 = {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}
    manifest = {
        "format": FORMAT,
        "engine": ENGINE,
        "quantization": quantization,
        "exported_from": asdict(checkpoint),
        "prepared": asdict(run.prepared),
        "sha256": sha256,
    }
    write_json(folder / MANIFEST, sealed(manifest))
    return ExportedRun(folder, config, run.prepared, checkpoint, quantization, sha256)


def open_exported_run(folder: Path) -> ExportedRun:
    """Open an exported model after checking all of its files.

    Raises:
        UsageError: it has no manifest: an earlier version exported it, or another program.
        DataError: a file is missing or altered.
    """
    path = folder / MANIFEST
    if not path.is_file():
        again = command_line("export", "RUN", "--to", ENGINE, folder, "--overwrite")
        raise UsageError(
            f"{folder}: an exported model without {MANIFEST}, which earlier versions did not write; "
            f"export it again: {again}"
        )
    if SEAL not in read_json(path):
        raise DataError(f"{path}: not a manifest of an exported model, which has a {SEAL}")
    match read_sealed(path, early_keys=(), below=folder, warns=False):
        case {
            "format": 1,
            "engine": "ctranslate2",
            "quantization": str(quantization),
            "exported_from": {"folder": str(run), "checkpoint": str(checkpoint), "sha256": str(weights)},
            "prepared": {"folder": str(prepared), "sha256": str(data)},
            "sha256": dict(hashes),
        } if RUN_CONFIG in hashes and quantization in get_args(Quantization):
            sha256 = {name: str(digest) for name, digest in hashes.items()}
        case _:
            raise DataError(f"{path}: not a manifest of an exported model of format {FORMAT}")
    is_small = {name: name == RUN_CONFIG or name.startswith(TOKENIZER) for name in sha256}
    of_ours = {name: digest for name, digest in sha256.items() if is_small[name]}
    check_hashes(folder, of_ours, most=MOST_TOKENIZER_BYTES)
    exported = ExportedRun(
        folder,
        config_of_bytes(read_file(folder / RUN_CONFIG, most=MOST_CONFIG_BYTES), origin=folder / RUN_CONFIG),
        PreparedReference(prepared, data),
        CheckpointReference(run, checkpoint, weights),
        quantization,
        sha256,
    )
    of_engine = {name: digest for name, digest in sha256.items() if not is_small[name]}
    check_hashes(folder, of_engine, most=exported.most_bytes)
    return exported


def _read_list(path: Path) -> object:
    try:
        return parse_json(read_file(path, most=MOST_TOKENIZER_BYTES))
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error}); the file is damaged") from error


def open_any_runs(folders: Sequence[Path]) -> Sequence[AnyRun]:
    """Open the runs in `folders` as an ensemble, or the one exported model.

    Raises:
        UsageError: as `open_runs`; or an exported model is named beside others.
        DataError: a file is missing or altered.
    """
    for folder in folders:
        recover(folder)
    exported = [folder for folder in folders if is_exported(folder)]
    if not exported:
        return open_runs(folders)
    if len(folders) > 1:
        raise UsageError(
            f"{exported[0]}: an exported model translates alone; an ensemble needs the runs themselves"
        )
    return [open_exported_run(exported[0])]
