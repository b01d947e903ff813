"""Run folders: everything needed to use, move or resume a trained model.

manifest.json   format, sha256 of config and tokenizer, prepared data, parent run
config.toml     tokenizer/                        loaded by every command
checkpoints/    best.txt  last.txt                see `checkpoint`
status.json  env.json  metrics.jsonl  train.log   reports on the training
eval/           README.md                         saved evaluations, and the model card
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import BaseModel

from mt_cli.config.load import RUN_CONFIG, dump_config, flat
from mt_cli.config.schema import Backend, Config, Quantization
from mt_cli.data.encoded import TrainingLengths
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import (
    MANIFEST,
    built_beside,
    check_replaceable,
    has_files,
    parsed,
    read_file,
    read_json,
    remove,
    sha256_bytes,
    sha256_json,
    write_atomically,
    write_json,
)
from mt_cli.model.numpy_model import FloatArray, Shape, Weights, parameter_shapes
from mt_cli.runs.checkpoint import read_arrays, tensors_of, weights_sha256
from mt_cli.runs.reports import FINISHED, Status
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers

if TYPE_CHECKING:
    from mt_cli.data.prepared import Prepared
    from mt_cli.model.model import TranslationModel

Item = TypeVar("Item")

CHECKPOINTS = "checkpoints"
EVALUATIONS = "eval"
SCORES = "scores.json"
LOG = "train.log"
METRICS = "metrics.jsonl"
STATUS = "status.json"
ENVIRONMENT = "env.json"
EXPORTED_MODEL = "model.bin"
"""CTranslate2's file of weights in an exported model."""
POINTERS = ("best", "last")
CHECKPOINT_NAME = re.compile(r"step-\d{8,}")
RESUMED = "resumed"
AFTER_STEP = "after_step"
"""Keys of env.json: facts that changed on a resume, and the last update before it."""


class PreparedReference(BaseModel):
    """The prepared data that a run was trained on."""

    folder: str
    sha256: str


class CheckpointReference(BaseModel):
    """A checkpoint that a run started from, learns from, or was exported from."""

    folder: str
    """Folder of its run."""
    checkpoint: str
    sha256: str
    """Hash of its weights."""
    encoder_layers: int | None = None
    decoder_layers: int | None = None
    """Layers of the model that a run started from, which may have more of them."""
    quantization: Quantization | None = None
    """Number format of an exported model's matrices; `none` is float32."""


class RunManifest(BaseModel):
    """manifest.json."""

    format: Literal[2] = 2
    sha256: Mapping[str, str]
    """Hashes of the files that every command loads, by relative path."""
    prepared: PreparedReference
    init_from: CheckpointReference | None = None
    """None if the run started from random weights."""
    distil_from: tuple[CheckpointReference, ...] = ()
    """The teachers whose predictions are part of the labels."""
    exported_from: CheckpointReference | None = None
    """Set for an exported model (for CTranslate2, translation only); None for a run."""
    lengths: TrainingLengths = TrainingLengths()
    """Lengths in the training pairs."""


@dataclass(frozen=True)
class Recipe:
    """Identifies how a run was trained."""

    config: str
    """Hash of its data and of its config without the seed."""
    seed: int


def joined_by_seed(items: Iterable[Item], recipes: Iterable[Recipe | None]) -> list[list[Item]]:
    """Group the `items` whose `recipes` differ only in the seed; items without one stay alone.

    A copy of a run does not count as another seed.
    """
    groups: dict[object, list[Item]] = {}
    times = Counter[Recipe]()
    for place, (item, recipe) in enumerate(zip(items, recipes, strict=True)):
        key: object = place
        if recipe is not None:
            key = (recipe.config, times[recipe])
            times[recipe] += 1
        groups.setdefault(key, []).append(item)
    return list(groups.values())


@dataclass(frozen=True)
class Run:
    """A run: checkpoints of a model, and everything that training and evaluation wrote.

    It may also be an exported model, which can only translate.
    """

    folder: Path
    config: Config
    manifest: RunManifest
    """The files that it lists are already verified."""

    @property
    def is_exported(self) -> bool:
        """Whether this is an exported model for CTranslate2, without checkpoints."""
        return self.manifest.exported_from is not None

    def check_is_run(self) -> None:
        """Reject an exported model.

        Raises:
            UsageError: this is an exported model.
        """
        if self.is_exported:
            raise UsageError(
                f"{self.folder}: an exported model can only translate; use the run it came from"
            )

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of both sides."""
        return Tokenizers.read(self.folder / name for name in self.tokenizer_hashes)

    @property
    def tokenizer_hashes(self) -> dict[str, str]:
        """sha256 of the tokenizer's files, by relative path."""
        hashes = self.manifest.sha256.items()
        return {name: each for name, each in hashes if name.startswith(f"{TOKENIZER_FOLDER}/")}

    @property
    def recipe(self) -> Recipe:
        """The recipe of the training."""
        values = flat(self.config)
        seed = values.pop("runtime.seed")
        return Recipe(sha256_json([values, self.manifest.prepared.sha256]), cast("int", seed))

    # The model

    @cached_property
    def parameter_shapes(self) -> dict[str, Shape]:
        """The shapes of the model's parameters, by name, without reading the weights."""
        return parameter_shapes(
            self.config.model,
            src_vocab_size=self.tokenizers.src.vocab_size,
            tgt_vocab_size=self.tokenizers.tgt.vocab_size,
        )

    def build_model(self, *, backend: Backend | None = None, seed: int = 0) -> "TranslationModel":
        """Build an untrained model of this run, on `backend` or the one it was trained with."""
        from mt_cli.model.model import build_model

        changed = {} if backend is None else {"backend": backend}
        config = self.config.model.model_copy(update=changed)
        return build_model(config, self.tokenizers, seed=seed)

    def load_model(
        self, *, checkpoint: str = "best", backend: Backend | None = None
    ) -> "TranslationModel":
        """Load the model of `checkpoint` (`best`, `last`, or a folder name), in eval mode."""
        return self.model_of(self.read_weights(checkpoint), backend=backend)

    def read_weights(self, checkpoint: str) -> dict[str, FloatArray]:
        """Read and verify the weights of `checkpoint`, by parameter name."""
        self.check_is_run()
        return read_arrays(self.checkpoint_folder(checkpoint), self.parameter_shapes)

    def model_of(self, weights: Weights, *, backend: Backend | None = None) -> "TranslationModel":
        """Build the model with these `weights`, in eval mode."""
        model = self.build_model(backend=backend)
        if dict(model.named_parameters()).keys() != weights.keys():
            raise UsageError(
                f"{self.folder}: backend '{backend}' has different parameters than the run"
            )
        model.load_state_dict(tensors_of(weights), strict=False)  # tied weights are saved once
        return model.eval()

    def weights_sha256(self, checkpoint: str) -> str:
        """sha256 of the weights of a checkpoint, or of an exported model."""
        if self.is_exported:
            return self.manifest.sha256[EXPORTED_MODEL]
        return weights_sha256(self.checkpoint_folder(checkpoint))

    # Checkpoints

    @property
    def checkpoints(self) -> list[str]:
        """Names of the existing checkpoints, oldest first."""
        names = (path.name for path in self.folder.glob(f"{CHECKPOINTS}/*"))
        found = [name for name in names if CHECKPOINT_NAME.fullmatch(name)]
        return sorted(found, key=lambda name: (len(name), name))  # steps from 10^8 are longer

    @property
    def best_checkpoint(self) -> str | None:
        """Name of the best checkpoint; None before the first validation."""
        return self.resolve_checkpoint("best") if self.pointer("best") else None

    def checkpoint_folder(self, name: str) -> Path:
        """Folder of the checkpoint called `name`, which may be `best` or `last`."""
        return self.folder / CHECKPOINTS / self.resolve_checkpoint(name)

    def resolve_checkpoint(self, name: str) -> str:
        """Resolve `best` or `last` to a checkpoint's name; they change during training.

        Raises:
            UsageError: the checkpoint does not exist.
            DataError: `best` points to a missing checkpoint.
        """
        if self.manifest.exported_from is not None:
            own = self.manifest.exported_from.checkpoint
            if name in ("best", own):
                return own
            raise UsageError(f"{self.folder}: was exported from {own}; leave out --checkpoint")
        for _ in range(2):  # a running training may just have replaced the best
            target = self.pointer(name) if name in POINTERS else name
            names = self.checkpoints
            if target in names:
                return target
        if name == "best" and target is not None:
            remedy = "restore the checkpoints folder from a backup, or train again"
            if names:
                remedy = f"found {', '.join(names)}; write one of these names into best.txt"
            raise DataError(
                f"{self.folder / 'best.txt'}: names {target!r}, which does not exist; {remedy}"
            )
        existing = [pointer for pointer in POINTERS if self.pointer(pointer) in names] + names
        hint = f"it has {', '.join(existing)}" if existing else "training has not saved one yet"
        hint += "; the first validation writes best" if existing and name == "best" else ""
        raise UsageError(f"{self.folder}: no checkpoint '{name}'; {hint}")

    def pointer(self, name: str) -> str | None:
        """Name of the checkpoint that `best` or `last` points to, if any.

        `last` is always the newest one: a kill may have come before the pointer was written.
        """
        if name == "last":
            return self.checkpoints[-1] if self.checkpoints else None
        path = self.folder / f"{name}.txt"
        return read_file(path).strip().decode(errors="replace") if path.exists() else None

    def point(self, name: str, *, to: str) -> None:
        """Let `best` or `last` point to the checkpoint called `to`."""
        write_atomically(self.folder / f"{name}.txt", f"{to}\n".encode())

    def remove_unused_checkpoints(self, *, last: str) -> None:
        """Delete all checkpoints except the best one and `last`.

        Newer ones than `last` are deleted, too: they were unusable when training was resumed.
        """
        for name in self.checkpoints:
            if name not in (self.pointer("best"), last):
                remove(self.folder / CHECKPOINTS / name)

    # Reports

    @property
    def metrics_path(self) -> Path:
        """File with one JSON object per line, for each logged step and each validation."""
        return self.folder / METRICS

    def environment(self) -> dict[str, object]:
        """The facts of env.json; empty if there is no such file."""
        path = self.folder / ENVIRONMENT
        return read_json(path) if path.exists() else {}

    def status(self) -> Status:
        """The state of its training."""
        path = self.folder / STATUS
        return parsed(Status, read_file(path), path) if path.exists() else Status()

    @property
    def is_finished(self) -> bool:
        """Whether its training is finished."""
        return self.status().state in FINISHED

    def latest_environment(self) -> dict[str, object]:
        """The facts of env.json at the latest start or resume."""
        facts = self.environment()
        for session in _pop_resumed(facts):
            facts |= session
        return facts

    def note_environment(self, environment: Mapping[str, object], *, after_step: int) -> None:
        """Record in env.json which facts of `environment` changed on this resume.

        Records of later updates, which a kill has lost, are dropped.
        """
        facts = dict(environment) if after_step == 0 else self.environment()
        sessions = [session for session in _pop_resumed(facts) if session[AFTER_STEP] < after_step]
        latest = dict(facts)
        for session in sessions:
            latest |= session
        changed = {key: value for key, value in environment.items() if latest.get(key) != value}
        if changed:
            sessions.append({AFTER_STEP: after_step, **changed})
        resumed = {RESUMED: sessions} if sessions else {}
        write_json(self.folder / ENVIRONMENT, facts | resumed)

    def kept_evaluations(self) -> list[Path]:
        """Folders of the saved evaluations, by name."""
        folders = self.folder.glob(f"{EVALUATIONS}/[!.]*")
        return sorted(path for path in folders if (path / SCORES).exists())


def _pop_resumed(facts: dict[str, object]) -> list[dict[str, Any]]:
    """Remove from the `facts` of env.json the records of resumes, and return them."""
    noted = facts.pop(RESUMED, [])
    sessions = []
    for each in noted if isinstance(noted, list) else []:
        match each:
            case {"after_step": int()}:
                sessions.append(each)
    return sessions


def check_place(folder: Path, *, overwrite: bool) -> None:
    """Check that a run can be created in `folder`.

    Raises:
        UsageError: the folder exists, and `overwrite` is off or it is not a run folder.
    """
    # Prepared folders also have a manifest, and exported models the other two files.
    is_run = partial(has_files, names=(MANIFEST, RUN_CONFIG, ENVIRONMENT))
    check_replaceable(
        folder,
        is_wanted=overwrite or not is_run(folder),
        is_own=is_run,
        kind="a run folder",
        ways_out="--resume continues it, --overwrite replaces it, --run DIR writes elsewhere",
    )


def create_run(
    folder: Path,
    config: Config,
    *,
    prepared: "Prepared",
    environment: Mapping[str, object],
    init_from: CheckpointReference | None = None,
    distil_from: tuple[CheckpointReference, ...] = (),
    overwrite: bool = False,
) -> Run:
    """Create a run folder; the caller holds its lock. Raises as `check_place` does."""
    check_place(folder, overwrite=overwrite)
    files = {RUN_CONFIG: dump_config(config).encode()}
    for name, data in prepared.tokenizers.to_files().items():
        files[f"{TOKENIZER_FOLDER}/{name}"] = data
    manifest = RunManifest(
        sha256={name: sha256_bytes(data) for name, data in files.items()},
        prepared=PreparedReference(folder=str(prepared.folder), sha256=prepared.sha256),
        init_from=init_from,
        distil_from=distil_from,
        lengths=prepared.manifest.lengths,
    )
    with built_beside(folder) as partial:
        for name, data in files.items():
            write_atomically(partial / name, data)
        write_json(partial / ENVIRONMENT, environment)
        write_json(partial / MANIFEST, manifest.model_dump(exclude_none=True))
    return Run(folder, config, manifest)
