"""The manifest of a run: which files belong to it, on which data it was trained, and what it started with.

Knows what a manifest says, nothing of the files themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from mt_cli.artefacts.files import LONGEST_NAME, MANIFEST
from mt_cli.artefacts.json_files import read_sealed, sealed, write_json
from mt_cli.config import MOST_LAYERS, RUN_CONFIG
from mt_cli.errors import DataError

LONGEST_PATH = 4096
Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS)]


@dataclass(frozen=True)
class PreparedReference:
    """The prepared data that a run was trained on."""

    folder: str
    sha256: str


@dataclass(frozen=True)
class CheckpointReference:
    """The checkpoint that a model was exported from, or whose weights a run started with."""

    folder: str
    """Of the run that it belongs to."""
    checkpoint: str
    sha256: str
    """Of its weights."""


@dataclass(frozen=True)
class ParentReference(CheckpointReference):
    """The checkpoint whose weights a run started with; its model has as many layers as the run's, or more."""

    encoder_layers: Layers | None = None
    """None in runs of early versions: as many as the run's own."""
    decoder_layers: Layers | None = None


class RunManifest(BaseModel):
    """manifest.json, without its seal. Early versions wrote none."""

    format: Literal[1]
    sha256: Mapping[str, str]
    """Of the files that every command loads, by relative path."""
    prepared: PreparedReference
    init_from: ParentReference | None = None
    """None for a run that started with random weights."""


def read_run_manifest(folder: Path, *, warns: bool) -> RunManifest:
    """The manifest of the run in `folder`; `warns` says whether to warn of one without a seal.

    Raises:
        DataError: it was altered, or is none of a run.
    """
    path = folder / MANIFEST
    document = read_sealed(path, early_keys=RunManifest.model_fields, below=folder, warns=warns)
    try:
        manifest = RunManifest.model_validate(document)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))[:LONGEST_NAME]
        if where in RunManifest.model_fields:
            raise DataError(f"{path}: not a run manifest of format 1") from error
        raise DataError(f"{path}: {where!r} is not what belongs there; the file is damaged") from error
    if RUN_CONFIG not in manifest.sha256:
        raise DataError(f"{path}: lists no {RUN_CONFIG}; the file is damaged")
    if len(manifest.prepared.folder) > LONGEST_PATH:
        raise DataError(f"{path}: the path of its data is too long; the file is damaged")
    if (parent := manifest.init_from) is not None:
        if len(parent.folder) > LONGEST_PATH:
            raise DataError(
                f"{path}: the path of the run that it started with is too long; the file is damaged"
            )
        if len(parent.checkpoint) > LONGEST_NAME:
            raise DataError(
                f"{path}: the checkpoint that it started with has too long a name; the file is damaged"
            )
    return manifest


def write_run_manifest(folder: Path, manifest: RunManifest) -> None:
    """Write the manifest of the run in `folder`."""
    write_json(folder / MANIFEST, sealed(manifest.model_dump(exclude_none=True)))
