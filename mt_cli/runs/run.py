"""Run folders: everything that is needed to use, move or resume a trained model.

    manifest.json   format, sha256 of config and tokenizer, which prepared data, which parent
    config.toml     tokenizer/                        what every command loads
    checkpoints/    best.txt  last.txt                see `checkpoint`
    status.json  env.json  metrics.jsonl  train.log   reports on the training
    eval/           README.md                         kept evaluations, and the model card

Torch is imported only when a model is built: an exported model does without it.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from mt_cli.config.load import RUN_CONFIG, dump_config
from mt_cli.config.schema import Backend, Config, Quantization
from mt_cli.data.prepared import Prepared, TrainingLengths
from mt_cli.errors import DataError, Option, UsageError
from mt_cli.machine.files import (
    MANIFEST,
    MAX_TEXT_BYTES,
    built_beside,
    check_replaceable,
    has_files,
    read_file,
    read_json,
    remove,
    sha256_bytes,
    write_atomically,
    write_errors_named,
    write_json,
)
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers

if TYPE_CHECKING:
    from mt_cli.model.model import Shape, TranslationModel

METRICS_FILE = "metrics.jsonl"
Record = dict[str, object]


def read_metrics(path: Path) -> list[Record]:
    """The records of the file `path`, but for an unfinished last line; none if there is no file.

    Raises:
        DataError: a line is damaged.
    """
    if not path.exists():
        return []
    records = []
    lines = read_file(path, max_bytes=MAX_TEXT_BYTES).split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        match record:
            case {"kind": str(), "step": int()}:
                records.append(record)
            case _:
                raise DataError(
                    f"{path}: line {number}: damaged: no JSON with kind and step; delete this "
                    "line; the others are still good"
                )
    return records


def append_metrics(path: Path, record: Mapping[str, object]) -> None:
    """Add a line to the file `path`."""
    with write_errors_named(path), path.open("ab") as file:
        file.write(f"{json.dumps(record, allow_nan=False)}\n".encode())


def truncate_metrics(path: Path, *, after_step: int) -> None:
    """Drop the lines of later updates, which a kill lost, and an unfinished last line."""
    kept = []
    for record in read_metrics(path):
        if number_in(record, "step", path=path) <= after_step:
            kept.append(f"{json.dumps(record)}\n")
    write_atomically(path, "".join(kept).encode())


def number_in(record: Mapping[str, object], key: str, *, path: Path) -> float:
    """The number under `key` of a record of the file `path`.

    Raises:
        DataError: there is none.
    """
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(
            f"{path}: step {record.get('step')}: damaged: expected a number in '{key}', "
            f"found {value!r}"
        )
    return float(value)


CHECKPOINTS = "checkpoints"
EVALUATIONS = "eval"
SCORES = "scores.json"
LOG = "train.log"
STATUS = "status.json"
ENVIRONMENT = "env.json"
EXPORTED_MODEL = "model.bin"
"""CTranslate2's file with the weights of an exported model."""
POINTERS = ("best", "last")
CHECKPOINT_NAME = re.compile(r"step-\d{8,}")
RESUMED = "resumed"
AFTER_STEP = "after_step"
"""Keys of env.json: facts that changed when training was resumed, and the last update before."""


@dataclass(frozen=True)
class PreparedReference:
    """The prepared data that a run was trained on."""

    folder: str
    sha256: str


@dataclass(frozen=True)
class CheckpointReference:
    """A checkpoint that a model was exported from, or that a run started with or learns from."""

    folder: str
    """Of the run that it belongs to."""
    checkpoint: str
    sha256: str
    """Of its weights."""


@dataclass(frozen=True)
class ParentReference(CheckpointReference):
    """The checkpoint whose weights a run started with; its model may have more layers."""

    encoder_layers: int
    decoder_layers: int


@dataclass(frozen=True)
class ExportReference(CheckpointReference):
    """The checkpoint that an exported model was made from."""

    quantization: Quantization
    """What matrices are stored as; `none` is float32."""


class RunManifest(BaseModel):
    """manifest.json."""

    format: Literal[1]
    sha256: Mapping[str, str]
    """Of the files that every command loads, by relative path."""
    prepared: PreparedReference
    init_from: ParentReference | None = None
    """None for a run that started with random weights."""
    distil_from: tuple[CheckpointReference, ...] = ()
    """The teachers whose predictions are part of the labels."""
    exported_from: ExportReference | None = None
    """None for a run; otherwise the folder holds an `ExportedModel`."""
    lengths: TrainingLengths = TrainingLengths()
    """Of the pairs that the run was trained on."""


@dataclass(frozen=True)
class ModelFolder:
    """An opened folder of a model: a `Run` or an `ExportedModel`."""

    folder: Path
    config: Config
    prepared: PreparedReference
    sha256: Mapping[str, str]
    """sha256 of the files that every command loads, by relative path; already checked."""
    lengths: TrainingLengths = field(default_factory=TrainingLengths)
    """Of the pairs that it was trained on."""

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers, as they were when training began."""
        paths = [self.folder / name for name in self.tokenizer_hashes]
        return Tokenizers.from_files({path.name: read_file(path) for path in paths})

    @property
    def tokenizer_hashes(self) -> dict[str, str]:
        """sha256 of the files of the tokenizer, by relative path."""
        return {
            name: digest
            for name, digest in self.sha256.items()
            if name.startswith(f"{TOKENIZER_FOLDER}/")
        }

    def resolve_checkpoint(self, name: str) -> str:
        """The name of the checkpoint `name`, which may be `best` or `last`.

        Raises:
            UsageError: there is none of that name.
            DataError: `best` points to one that is not there.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ExportedModel(ModelFolder):
    """A model that was exported for CTranslate2: it translates and does nothing else."""

    exported_from: ExportReference = field(kw_only=True)

    def resolve_checkpoint(self, name: str) -> str:
        """The one checkpoint that the model was exported from."""
        own = self.exported_from.checkpoint
        if name not in ("best", own):
            raise UsageError(
                f"{self.folder}: an exported model of {own}, without '{name}'; leave out ",
                Option("checkpoint"),
            )
        return own


@dataclass(frozen=True)
class Run(ModelFolder):
    """A run: checkpoints of a model, and everything that training and evaluation wrote."""

    init_from: ParentReference | None = None
    distil_from: tuple[CheckpointReference, ...] = ()

    # The model

    @cached_property
    def parameter_shapes(self) -> "dict[str, Shape]":
        """The shape of each parameter of this run's model, by name, known without its weights."""
        from mt_cli.model.model import model_shapes

        return model_shapes(self.config.model, self.tokenizers)

    def build_model(self, *, backend: Backend | None = None, seed: int = 0) -> "TranslationModel":
        """A fresh model of this run's shape, on `backend` or the one it was trained with."""
        config = self.config.model
        if backend is not None:
            config = config.model_copy(update={"backend": backend})
        from mt_cli.model.model import build_model

        return build_model(config, self.tokenizers, seed=seed)

    def load_model(
        self, *, checkpoint: str = "best", backend: Backend | None = None
    ) -> "TranslationModel":
        """The trained model of `checkpoint` (`best`, `last`, or a folder name), in eval mode."""
        from mt_cli.runs.checkpoint import read_weights

        weights = read_weights(self.checkpoint_folder(checkpoint), self.parameter_shapes)
        model = self.build_model(backend=backend)
        if dict(model.named_parameters()).keys() != weights.keys():
            raise UsageError(
                f"{self.folder}: the layers of backend '{backend}' have other parameters than "
                f"those of '{self.config.model.backend}', with which the run was trained"
            )
        model.load_state_dict(weights, strict=False)  # tied weights are saved once
        return model.eval()

    # Checkpoints

    @property
    def checkpoints(self) -> list[str]:
        """Names of the existing checkpoints, oldest first."""
        names = (path.name for path in self.folder.glob(f"{CHECKPOINTS}/*"))
        found = [name for name in names if CHECKPOINT_NAME.fullmatch(name)]
        return sorted(found, key=lambda name: (len(name), name))  # from 10^8 on, a digit more

    @property
    def best_checkpoint(self) -> str | None:
        """Name of the best checkpoint; None before the first validation."""
        return self.resolve_checkpoint("best") if self.pointer("best") else None

    def checkpoint_folder(self, name: str) -> Path:
        """Folder of the checkpoint called `name`, which may be `best` or `last`."""
        return self.folder / CHECKPOINTS / self.resolve_checkpoint(name)

    def resolve_checkpoint(self, name: str) -> str:
        """See `ModelFolder`; what `best` and `last` mean changes while training goes on."""
        for _ in range(2):  # a training that goes on may just have replaced the best
            target = self.pointer(name) if name in POINTERS else name
            names = self.checkpoints
            if target in names:
                return target
        if name == "best" and target is not None:
            remedy = "restore the folder checkpoints from a copy, or train anew"
            if names:
                remedy = f"found {', '.join(names)}; write the name of one into it"
            raise DataError(
                f"{self.folder / 'best.txt'}: names {target!r}, which is not there; {remedy}"
            )
        found = [each for each in POINTERS if self.pointer(each) in names] + names
        hint = f"it has {', '.join(found)}" if found else "training saved none yet"
        raise UsageError(f"{self.folder}: no checkpoint '{name}'; {hint}")

    def pointer(self, name: str) -> str | None:
        """Name of the checkpoint that `best` or `last` points to, if there is one.

        The last one is the newest: a process may have been killed before it wrote the pointer.
        """
        if name == "last":
            return self.checkpoints[-1] if self.checkpoints else None
        path = self.folder / f"{name}.txt"
        return read_file(path).strip().decode(errors="replace") if path.exists() else None

    def point(self, name: str, *, to: str) -> None:
        """Let `best` or `last` point to the checkpoint called `to`."""
        write_atomically(self.folder / f"{name}.txt", f"{to}\n".encode())

    def remove_unused_checkpoints(self, *, last: str) -> None:
        """Delete all checkpoints but the best and the one called `last`.

        That includes newer ones than `last`: they could not be used when training was resumed.
        """
        for name in self.checkpoints:
            if name not in (self.pointer("best"), last):
                remove(self.folder / CHECKPOINTS / name)

    # Reports

    @property
    def metrics_path(self) -> Path:
        """File with one JSON object a line, for each logged step and each validation."""
        return self.folder / METRICS_FILE

    def read_facts(self, name: str) -> dict[str, object]:
        """The content of the file `name`, `STATUS` or `ENVIRONMENT`; empty if there is none."""
        path = self.folder / name
        return read_json(path) if path.exists() else {}

    def note_environment(self, environment: Mapping[str, object], *, after_step: int) -> None:
        """Note in env.json which facts of `environment` changed before training was resumed.

        Notes about updates that a kill has lost are dropped.
        """
        facts = dict(environment) if after_step == 0 else self.read_facts(ENVIRONMENT)
        noted = facts.pop(RESUMED, [])
        resumed = []
        before = dict(facts)
        for session in noted if isinstance(noted, list) else []:
            if session[AFTER_STEP] < after_step:
                resumed.append(session)
                before |= session
        changed = {key: value for key, value in environment.items() if before.get(key) != value}
        if changed:
            resumed.append({AFTER_STEP: after_step, **changed})
        if resumed:
            facts[RESUMED] = resumed
        write_json(self.folder / ENVIRONMENT, facts)

    def kept_evaluations(self) -> list[Path]:
        """Folders of the evaluations that the run keeps, by name."""
        folders = self.folder.glob(f"{EVALUATIONS}/[!.]*")
        return sorted(path for path in folders if (path / SCORES).exists())


def check_place(folder: Path, *, overwrite: bool) -> None:
    """Make sure that a run can be made in `folder`.

    Raises:
        UsageError: the folder exists and cannot be replaced: `overwrite` is off, or it is no run
            folder.
    """
    # Prepared folders have a manifest too, and exported models both of the others.
    is_run = partial(has_files, names=(MANIFEST, RUN_CONFIG, ENVIRONMENT))
    check_replaceable(
        folder,
        is_wanted=overwrite or not is_run(folder),
        is_own=is_run,
        kind="a run folder",
        ways_out="--resume goes on with it, --overwrite starts anew, --run names another",
    )


def create_run(
    folder: Path,
    config: Config,
    *,
    prepared: Prepared,
    environment: Mapping[str, object],
    init_from: ParentReference | None = None,
    distil_from: tuple[CheckpointReference, ...] = (),
    overwrite: bool = False,
) -> Run:
    """Create a run folder, whose lock the caller holds; raises as `check_place` does."""
    check_place(folder, overwrite=overwrite)
    files = {RUN_CONFIG: dump_config(config).encode()}
    for name, data in prepared.tokenizers.to_files().items():
        files[f"{TOKENIZER_FOLDER}/{name}"] = data
    manifest = RunManifest(
        format=1,
        sha256={name: sha256_bytes(data) for name, data in files.items()},
        prepared=PreparedReference(str(prepared.folder), prepared.sha256),
        init_from=init_from,
        distil_from=distil_from,
        lengths=prepared.manifest.lengths,
    )
    with built_beside(folder) as partial:
        for name, data in files.items():
            write_atomically(partial / name, data)
        write_json(partial / ENVIRONMENT, environment)
        write_json(partial / MANIFEST, manifest.model_dump(exclude_none=True))
    return Run(
        folder=folder,
        config=config,
        prepared=manifest.prepared,
        sha256=manifest.sha256,
        lengths=manifest.lengths,
        init_from=init_from,
        distil_from=distil_from,
    )
