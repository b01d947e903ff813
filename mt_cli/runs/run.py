"""Run folders: everything that is needed to use, move or resume a trained model.

    manifest.json   format, sha256 of config and tokenizer, which prepared data, which parent
    config.toml     tokenizer/                        what every command loads
    checkpoints/    best.txt  last.txt                see `checkpoint`
    status.json  env.json  metrics.jsonl  train.log   what training says of itself
    eval/           README.md                         what `evaluate` keeps, and the model card

Imports no torch until a model is built, so that an exported model can do without it.
"""

import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ValidationError

from mt_cli.config.load import RUN_CONFIG, differences, dump_config, is_run, load_config
from mt_cli.config.schema import Backend, Config, ModelConfig, Quantization
from mt_cli.data.prepared import Prepared, TrainingLengths, open_prepared
from mt_cli.errors import (
    ConfigError,
    DataError,
    Option,
    PreparedDataError,
    UsageError,
    command_line,
)
from mt_cli.machine.files import (
    MANIFEST,
    MOST_TEXT_BYTES,
    built_beside,
    check_hashes,
    check_replaceable,
    read_file,
    read_json,
    recover,
    remove,
    sha256_bytes,
    write_atomically,
    write_errors_named,
    write_json,
)
from mt_cli.text.tokenizer import Tokenizers

if TYPE_CHECKING:
    from mt_cli.model.translation_model import TranslationModel

TOKENIZER, CHECKPOINTS, EVALUATIONS = "tokenizer/", "checkpoints", "eval"
METRICS, LOG, STATUS, ENVIRONMENT = "metrics.jsonl", "train.log", "status.json", "env.json"
SCORES = "scores.json"
EXPORTED_MODEL = "model.bin"
"""CTranslate2's file, which an exported model has in the place of checkpoints."""
POINTERS = ("best", "last")
CHECKPOINT_NAME = re.compile(r"step-\d{8,}")
RESUMED, AFTER_STEP = "resumed", "after_step"
"""Keys of env.json: what was different each time that training was resumed, and the last update
before.
"""
log = logging.getLogger(__name__)
OF_TOKENIZER = ("tokenizer.kind", "tokenizer.joint", "data.lowercase")
"""What a tokenizer depends on, beside its size and its languages."""

Shape = tuple[int, ...]


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
    """The checkpoint whose weights a run started with; its model has as many layers as the run's,
    or more.
    """

    encoder_layers: int
    decoder_layers: int


@dataclass(frozen=True)
class ExportReference(CheckpointReference):
    """The checkpoint that an exported model was made of."""

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
    exported_from: ExportReference | None = None
    """None for a run; else the folder holds a model for CTranslate2, which translates and does no
    more.
    """
    lengths: TrainingLengths = TrainingLengths()
    """Of the pairs that the run was trained on."""


@dataclass(frozen=True)
class Run:
    """An opened run folder, or an exported model in the place of one."""

    folder: Path
    config: Config
    prepared: PreparedReference
    sha256: Mapping[str, str]
    """sha256 of the files that every command loads, by relative path; already checked."""
    init_from: ParentReference | None = None
    exported_from: ExportReference | None = None
    """Set for an exported model, which has no checkpoints, metrics or evaluations."""
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
        return {name: digest for name, digest in self.sha256.items() if name.startswith(TOKENIZER)}

    # The model

    @cached_property
    def parameter_shapes(self) -> dict[str, Shape]:
        """The shape of each parameter of this run's model, by name, known without its weights."""
        return model_shapes(self.config.model, self.tokenizers)

    def build_model(self, *, backend: Backend | None = None, seed: int = 0) -> "TranslationModel":
        """A fresh model of this run's shape, on `backend` or the one it was trained with.

        Raises:
            ResourceError: it is larger than this machine's memory.
        """
        from mt_cli.machine.device import check_fits_memory

        check_fits_memory(num_parameters(self.parameter_shapes))
        config = self.config.model
        return build_model(
            config.model_copy(update={"backend": backend or config.backend}),
            self.tokenizers,
            seed=seed,
        )

    def load_model(
        self, *, checkpoint: str = "best", backend: Backend | None = None
    ) -> "TranslationModel":
        """The trained model of `checkpoint` (`best`, `last`, or a folder name), in eval mode."""
        from mt_cli.runs.checkpoint import read_weights

        weights = read_weights(self.checkpoint_folder(checkpoint), self.parameter_shapes)
        model = self.build_model(backend=backend)
        model.load_state_dict(weights, strict=False)  # it has no names for tied ones
        return model.eval()

    # Checkpoints

    @property
    def checkpoints(self) -> list[str]:
        """Names of the existing checkpoints, oldest first."""
        names = (path.name for path in self.folder.glob(f"{CHECKPOINTS}/*"))
        return sorted(name for name in names if CHECKPOINT_NAME.fullmatch(name))

    def checkpoint_folder(self, name: str) -> Path:
        """Folder of the checkpoint called `name`, which may be `best` or `last`."""
        return self.folder / CHECKPOINTS / self.resolve_checkpoint(name)

    def resolve_checkpoint(self, name: str) -> str:
        """Name of the checkpoint that `name` means now; what `best` and `last` mean may change
        later.

        Raises:
            UsageError: there is none of that name.
            DataError: `best` points to one that is not there.
        """
        if self.exported_from is not None:
            own = self.exported_from.checkpoint
            if name in ("best", own):
                return own
            raise UsageError(
                f"{self.folder}: an exported model of {own}, without '{name}'; leave out ",
                Option("checkpoint"),
            )
        for _ in range(2):  # a training that goes on may just have replaced the best
            target = self.pointer(name) if name in POINTERS else name
            names = self.checkpoints
            if target in names:
                return target
        if name == "best" and target is not None:
            there = f"found {', '.join(names) or 'none'}; write the name of one into it"
            raise DataError(
                f"{self.folder / 'best.txt'}: names {target!r}, which is not there; {there}"
            )
        found = [each for each in POINTERS if self.pointer(each) in names] + names
        hint = f"it has {', '.join(found)}" if found else "training saved none yet"
        raise UsageError(f"{self.folder}: no checkpoint '{name}'; {hint}")

    def pointer(self, name: str) -> str | None:
        """Name of the checkpoint that `best` or `last` points to, if there is one.

        The last one is the newest: a process may have been killed before it wrote the pointer.
        """
        if name == "last":
            return max(self.checkpoints, default=None)
        path = self.folder / f"{name}.txt"
        return read_file(path).strip().decode(errors="replace") if path.exists() else None

    def point(self, name: str, *, to: str) -> None:
        """Let `best` or `last` point to the checkpoint called `to`."""
        write_atomically(self.folder / f"{name}.txt", f"{to}\n".encode())

    def remove_unused_checkpoints(self, *, last: str) -> None:
        """Delete checkpoints but the best and the one called `last`.

        A newer one than `last` is unused too: it could not be used, so training went on from
        another.
        """
        for name in self.checkpoints:
            if name not in (self.pointer("best"), last):
                remove(self.folder / CHECKPOINTS / name)

    # What training says of itself

    @property
    def metrics_path(self) -> Path:
        """File with one JSON object a line, for each logged step and each validation."""
        return self.folder / METRICS

    def metrics(self) -> Iterator[dict[str, object]]:
        """The records of metrics.jsonl, but for a last line that is unfinished.

        Raises:
            DataError: a line is damaged.
        """
        if not self.metrics_path.exists():
            return
        lines = read_file(self.metrics_path, most=MOST_TEXT_BYTES).split(b"\n")[:-1]
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            match record:
                case {"kind": str(), "step": int()}:
                    yield record
                case _:
                    raise DataError(
                        f"{self.metrics_path}: line {number}: damaged: no JSON with kind and step; "
                        "delete this line; the others are still good"
                    )

    def append_metrics(self, content: Mapping[str, object]) -> None:
        """Add a line to metrics.jsonl.

        Raises:
            ResourceError: the disk is full.
        """
        with write_errors_named(self.metrics_path), self.metrics_path.open("ab") as file:
            file.write(f"{json.dumps(content, allow_nan=False)}\n".encode())

    def forget_metrics_after(self, step: int) -> None:
        """Drop the lines of later updates, which a kill lost, and a last line that it left
        unfinished.
        """
        kept = [
            record
            for record in self.metrics()
            if isinstance(at := record["step"], int) and at <= step
        ]
        write_atomically(
            self.metrics_path, "".join(f"{json.dumps(each)}\n" for each in kept).encode()
        )

    def read_facts(self, name: str) -> dict[str, object]:
        """What the file `name` says, which is `STATUS` or `ENVIRONMENT`; nothing where there is
        none.
        """
        path = self.folder / name
        return read_json(path) if path.exists() else {}

    def note_resumption(self, environment: Mapping[str, object], *, after_step: int) -> None:
        """Note in env.json what of `environment` is new, where training goes on after `after_step`.

        A value of None means that a key is gone. What was noted of updates that a kill has lost is
        forgotten.
        """
        known = dict(environment) if after_step == 0 else self.read_facts(ENVIRONMENT)
        noted = known.pop(RESUMED, [])
        kept = (
            [each for each in noted if each[AFTER_STEP] < after_step]
            if isinstance(noted, list)
            else []
        )
        now = {AFTER_STEP: after_step, **environment}
        before = {
            key: value
            for facts in (known, *kept, {AFTER_STEP: None})
            for key, value in facts.items()
        }
        changed = {
            key: now.get(key) for key in {**now, **before} if now.get(key) != before.get(key)
        }
        kept += [changed] if len(changed) > 1 else []
        write_json(self.folder / ENVIRONMENT, {**known, **({RESUMED: kept} if kept else {})})

    # Evaluations

    def kept_evaluations(self) -> list[Path]:
        """Folders of the evaluations that the run keeps, by name."""
        return sorted(
            path for path in self.folder.glob(f"{EVALUATIONS}/[!.]*") if (path / SCORES).exists()
        )


def number_in(record: Mapping[str, object], key: str, *, path: Path) -> float:
    """The number under `key` of a record of metrics.jsonl, which is `path`.

    Raises:
        DataError: there is none.
    """
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        step = record.get("step")
        raise DataError(
            f"{path}: step {step}: damaged: expected a number in '{key}', found {value!r}"
        )
    return float(value)


# Opening


def open_run(folder: Path, *, may_be_exported: bool = False) -> Run:
    """Open a run folder after checking the files that every command loads.

    Of an exported model, if it `may_be` one, that is all of its files.

    Raises:
        UsageError: it is no run folder.
        DataError: a file is missing or altered.
    """
    recover(folder)
    path = folder / MANIFEST
    if not os.path.exists(path):  # noqa: PTH110 — text may be too long for a name
        inside = next((each for each in folder.parents if is_run(each)), None)
        if inside is not None:
            raise UsageError(
                f"{folder}: a part of a run, where a run is needed; name the run: {inside}"
            )
        if os.path.isfile(folder) and folder.suffix == ".toml":  # noqa: PTH113
            own = Path("runs") / folder.stem
            raise UsageError(
                f"{folder}: a config, where a run is needed; its run is {own}"
                + ("" if own.exists() else f", once it is trained: {command_line('train', folder)}")
            )
        is_folder = os.path.isdir(folder)  # noqa: PTH112
        what = f"not a run folder (it has no {MANIFEST})" if is_folder else "no such run folder"
        near = sorted(str(path.parent) for path in folder.parent.glob(f"[!.]*/{MANIFEST}"))
        hint = f"found: {', '.join(near)}" if near else _how_to_train(folder)
        raise UsageError(f"{folder}: {what}; {hint}")
    content = read_json(path)
    try:
        manifest = RunManifest.model_validate(content)
    except ValidationError as error:
        if "pairs" in content and "outputs" in content:
            trained = ", ".join(map(str, runs_trained_on(folder))) or command_line(
                "train", "CONFIG"
            )
            raise UsageError(
                f"{folder}: prepared data, where a run is needed: {trained}"
            ) from error
        if folder.resolve().parent.name == CHECKPOINTS:
            run = folder.resolve().parents[1]
            raise UsageError(
                f"{folder}: a checkpoint, where a run is needed; name its run, {run}, with "
                f"--checkpoint {folder.resolve().name}"
            ) from error
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise DataError(
            f"{path}: not a run manifest of format 1 ({where}): damaged, or of another version; "
            "train anew"
        ) from error
    if manifest.exported_from is not None and not may_be_exported:
        raise UsageError(
            f"{folder}: an exported model, which translate, evaluate and compare take; "
            "here, name the run that it was exported from"
        )
    if RUN_CONFIG not in manifest.sha256:
        raise DataError(f"{path}: lists no {RUN_CONFIG}; the file is damaged")
    check_hashes(folder, manifest.sha256)
    config = load_config(folder / RUN_CONFIG)
    return Run(
        folder,
        config,
        manifest.prepared,
        manifest.sha256,
        manifest.init_from,
        manifest.exported_from,
        manifest.lengths,
    )


def open_run_between(src_lang: str, tgt_lang: str, folder: Path, *, asked_by: str) -> Run:
    """Open the run in `folder`, which has to translate from `src_lang` to `tgt_lang`.

    Raises:
        UsageError: there is no such run, or it has another direction; the message begins with
            `asked_by`, a flag or a key.
    """
    run = open_run(folder)
    found = run.config.data
    if (found.src_lang, found.tgt_lang) != (src_lang, tgt_lang):
        raise UsageError(
            f"{asked_by}: {folder} translates from {found.src_lang} to {found.tgt_lang}; "
            f"a run from {src_lang} to {tgt_lang} is needed"
        )
    return run


def open_runs(folders: Sequence[Path], *, may_be_exported: bool = False) -> list[Run]:
    """Open the runs in `folders` as an ensemble; or, if there `may_be` one, the exported model.

    Raises:
        UsageError: none is named, one is no run folder or has another tokenizer than the first, or
            an exported model is named beside others.
        DataError: a file is missing or altered.
    """
    if not folders:
        raise UsageError("no run is named; name one at least")
    first, *others = runs = [
        open_run(folder, may_be_exported=may_be_exported) for folder in folders
    ]
    exported = [run for run in runs if run.exported_from is not None]
    if exported and others:
        raise UsageError(
            f"{exported[0].folder}: an exported model translates alone; an ensemble needs the runs "
            "themselves"
        )
    for other in others:
        if other.tokenizer_hashes != first.tokenizer_hashes:
            raise UsageError(
                f"{other.folder}: its vocabulary is not that of {first.folder}; only runs of the "
                "same tokenizer can translate together"
            )
    return runs


def runs_trained_on(prepared: Path, *, among: Path = Path("runs")) -> list[Path]:
    """The runs in the folder `among` whose prepared data lie in the folder `prepared`."""
    found = []
    for path in sorted(among.glob(f"[!.]*/{MANIFEST}")):
        with suppress(DataError, ValidationError):
            manifest = RunManifest.model_validate(read_json(path))
            if Path(manifest.prepared.folder).resolve() == prepared.resolve():
                found.append(path.parent)
    return found


def model_shapes(config: ModelConfig, tokenizers: Tokenizers) -> dict[str, Shape]:
    """The shape of each parameter, by name, of a model for `tokenizers`.

    The model is built on PyTorch's `meta` device, where tensors take no memory.
    """
    import torch

    with torch.device("meta"):
        # Sinusoids are no parameters. To compute them there would load PyTorch's compiler, a
        # second's work.
        learned = config.model_copy(update={"positions": "learned"})
        parameters = dict(build_model(learned, tokenizers, seed=0).named_parameters())
    if config.positions == "sinusoidal":
        parameters = {name: each for name, each in parameters.items() if "positions" not in name}
    return {name: tuple(parameter.shape) for name, parameter in parameters.items()}


def _how_to_train(folder: Path) -> str:
    configs = sorted(path for path in Path("configs").rglob("*.toml") if path.stem == folder.name)
    if not configs or folder.exists():
        return f"{command_line('train', 'CONFIG')} makes one"
    place = () if folder == Path("runs") / folder.name else ("--run", folder)
    return f"to train it: {command_line('train', configs[0], *place)}"


def num_parameters(shapes: Mapping[str, Shape]) -> int:
    """How many numbers parameters of these shapes hold."""
    return sum(map(math.prod, shapes.values()))


def build_model(config: ModelConfig, tokenizers: Tokenizers, *, seed: int) -> "TranslationModel":
    """A fresh model for the text of `tokenizers`."""
    import torch

    from mt_cli.model.translation_model import TranslationModel

    return TranslationModel(
        src_vocab_size=tokenizers.src.vocab_size,
        tgt_vocab_size=tokenizers.tgt.vocab_size,
        generator=torch.Generator("cpu").manual_seed(seed),
        **config.model_dump(),
    )


def run_with_tokenizer(config: Config) -> Run | None:
    """The run that `tokenizer.from_run` names, if any; its tokenizer has to suit `config`.

    Joint subwords of other languages are used, with a warning.

    Raises:
        ConfigError: it is of another kind, or a side's entries are of another language.
        UsageError: there is no such run.
    """
    if config.tokenizer.from_run is None:
        return None
    run = open_run(config.tokenizer.from_run)
    wanted, found = ((each.data.src_lang, each.data.tgt_lang) for each in (config, run.config))
    is_shared = config.tokenizer.joint and config.tokenizer.kind != "spacy"
    keys = OF_TOKENIZER if is_shared else (*OF_TOKENIZER, "data.src_lang", "data.tgt_lang")
    different = [
        f"{key} is {json.dumps(wanted)}, there {json.dumps(found)}"
        for key, (wanted, found) in differences(config, run.config).items()
        if key in keys
    ]
    if different:
        raise ConfigError(
            f"tokenizer.from_run: the tokenizer of {run.folder} does not suit this config: "
            f"{'; '.join(different)}; write the same, or learn a tokenizer without from_run"
        )
    if wanted != found:
        log.warning(
            "%s translates from %s to %s, and this config is from %s to %s: what it knows will "
            "help little",
            run.folder, *found, *wanted,
        )  # fmt: skip
    return run


def open_prepared_of(run: Run, folder: Path | None = None, *, otherwise: str = "") -> Prepared:
    """The prepared data on which `run` was trained, in `folder` if they have moved.

    `otherwise` is added to the error for missing data; it tells users how to do without them.

    Raises:
        DataError: the data are missing, or are not those of `run`.
    """
    place = folder or Path(run.prepared.folder)
    try:
        prepared = open_prepared(place)
    except (PreparedDataError, OSError) as error:
        raise DataError(
            f"{error}; say with --data DIR where the data that {run.folder} was trained on "
            f"are{otherwise}"
        ) from error
    if prepared.sha256 != run.prepared.sha256:
        raise DataError(
            f"{place}: not the data that {run.folder} was trained on (prepared anew since?); "
            "name the right folder with --data DIR"
        )
    return prepared


# Making


def check_place(folder: Path, *, overwrite: bool) -> None:
    """Make sure that a run can be made in `folder`.

    Raises:
        UsageError: the folder exists and cannot be replaced: `overwrite` is off, or it is no run
            folder.
    """
    own_files = (MANIFEST, RUN_CONFIG, ENVIRONMENT)
    is_replaceable = all((folder / name).is_file() for name in own_files)
    check_replaceable(
        folder,
        is_wanted=overwrite or not is_replaceable,
        # Prepared folders have a manifest too, and exported models both of the others.
        own_files=own_files,
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
    overwrite: bool = False,
) -> Run:
    """Create a run folder, whose lock the caller holds.

    Raises:
        UsageError: the folder exists and cannot be replaced: `overwrite` is off, or it is no run
            folder.
    """
    check_place(folder, overwrite=overwrite)
    files = {RUN_CONFIG: dump_config(config).encode()}
    files |= {f"{TOKENIZER}{name}": data for name, data in prepared.tokenizers.to_files().items()}
    manifest = RunManifest(
        format=1,
        sha256={name: sha256_bytes(data) for name, data in files.items()},
        prepared=PreparedReference(str(prepared.folder), prepared.sha256),
        init_from=init_from,
        lengths=prepared.manifest.lengths,
    )
    with built_beside(folder) as partial:
        for name, data in files.items():
            write_atomically(partial / name, data)
        write_json(partial / ENVIRONMENT, environment)
        write_json(partial / MANIFEST, manifest.model_dump(exclude_none=True))
    return open_run(folder)
