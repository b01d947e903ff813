"""Run folders: everything that is needed to use, move or resume a trained model.

Knows files and their names; never how to train or translate.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from mt_cli.artefacts import checkpoints
from mt_cli.artefacts.checkpoint import fill, read_weights
from mt_cli.artefacts.files import MANIFEST, check_hashes, is_there, read_file
from mt_cli.artefacts.folders import recover, remove_leftovers
from mt_cli.artefacts.metrics import Record, append_metrics, forget_metrics_after, read_metrics
from mt_cli.artefacts.run_facts import STATUS, write_facts
from mt_cli.artefacts.run_lock import LOG, locked
from mt_cli.artefacts.run_manifest import ParentReference, PreparedReference, read_run_manifest
from mt_cli.config import RUN_CONFIG, Backend, Config, ModelConfig, config_of_bytes
from mt_cli.errors import UsageError, command_line
from mt_cli.model.shapes import Shape, check_fits_memory, check_training_fits, parameter_shapes
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text.symbols import PAD_ID
from mt_cli.text.tokenizer import Tokenizers

METRICS, TOKENIZER = "metrics.jsonl", "tokenizer/"
EXPORTED_MODEL = ("model.bin", "config.json")
"""CTranslate2's files, by which an exported model is known where there are no checkpoints."""
MOST_CONFIG_BYTES, MOST_TOKENIZER_BYTES = 1 << 20, 1 << 25


@dataclass(frozen=True)
class Run:
    """An opened run folder."""

    folder: Path
    config: Config
    prepared: PreparedReference
    sha256: Mapping[str, str]
    """sha256 of the files that every command loads, by relative path; already checked."""
    init_from: ParentReference | None = None
    """None for a run that started with random weights."""

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers, as they were when training began."""
        return read_tokenizers(self.folder, self.sha256)

    @property
    def metrics_path(self) -> Path:
        """File with one JSON object a line, for each logged step and each validation."""
        return self.folder / METRICS

    @property
    def log_path(self) -> Path:
        """The log of training."""
        return self.folder / LOG

    def build_model(self, *, backend: Backend | None = None, seed: int = 0) -> TranslationModel:
        """A fresh model of this run's shape, on `backend` or the one it was trained with."""
        return build_model(
            self.config.model.model_copy(update={"backend": backend or self.config.model.backend}),
            src_vocab_size=self.tokenizers.src.vocab_size,
            tgt_vocab_size=self.tokenizers.tgt.vocab_size,
            seed=seed,
        )

    @property
    def parameter_shapes(self) -> dict[str, Shape]:
        """The shape of each parameter of this run's model, by name, known without building it."""
        return model_shapes(self.config.model, self.tokenizers)

    def load_model(self, *, checkpoint: str = "best", backend: Backend | None = None) -> TranslationModel:
        """The trained model of `checkpoint` (`best`, `last`, or a folder name), in eval mode."""
        weights = read_weights(self.checkpoint_folder(checkpoint), self.parameter_shapes)
        model = self.build_model(backend=backend)
        fill(model, weights)
        return model.eval()

    @property
    def checkpoints(self) -> list[str]:
        """Names of the existing checkpoints, oldest first."""
        return checkpoints.checkpoint_names(self.folder)

    def checkpoint_folder(self, name: str) -> Path:
        """Folder of the checkpoint called `name`; see `find_checkpoint`."""
        return checkpoints.find_checkpoint(self.folder, name)

    def place_of_checkpoint(self, step: int) -> Path:
        """Where the checkpoint after update `step` belongs."""
        return checkpoints.place_of_checkpoint(self.folder, step=step)

    def resolve_checkpoint(self, name: str) -> str:
        """Name of the checkpoint that `name` means now; what `best` and `last` mean may change later."""
        return self.checkpoint_folder(name).name

    def pointer(self, name: str) -> str | None:
        """Name of the checkpoint that `best` or `last` points to, if there is one."""
        return checkpoints.read_pointer(self.folder, name)

    def point(self, name: str, *, step: int) -> None:
        """Let `best` or `last` point to the checkpoint after `step`."""
        checkpoints.write_pointer(self.folder, name, step=step)

    def remove_unused_checkpoints(self, *, last: int) -> None:
        """Delete checkpoints but the best and that of step `last`, and those that are unfinished."""
        checkpoints.remove_unused_checkpoints(self.folder, last=last)

    def remove_leftovers(self) -> None:
        """Remove what killed processes left unfinished in this folder."""
        remove_leftovers(self.folder)

    def forget_metrics_after(self, step: int) -> None:
        """Drop the lines of later updates, which a kill lost, and a last line that it left unfinished.

        Raises:
            DataError: a line is damaged.
        """
        forget_metrics_after(self.metrics_path, step)

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from training in this folder.

        Raises:
            UsageError: another process is training there.
        """
        return locked(self.folder)

    def metrics(self) -> Iterator[Record]:
        """The records of metrics.jsonl, but for a last line that is unfinished.

        Raises:
            DataError: a line is damaged.
        """
        return read_metrics(self.metrics_path)

    def append_metrics(self, content: Mapping[str, object]) -> None:
        """Add a line to metrics.jsonl.

        Raises:
            ResourceError: the disk is full.
        """
        append_metrics(self.metrics_path, content)

    def write_status(self, status: Mapping[str, object]) -> None:
        """Replace status.json."""
        write_facts(self.folder, STATUS, status)


def build_model(
    config: ModelConfig, *, src_vocab_size: int, tgt_vocab_size: int, seed: int
) -> TranslationModel:
    """A model with fresh weights, the same for either backend.

    Raises:
        ResourceError: it is larger than this machine's memory.
    """
    sizes = {"src_vocab_size": src_vocab_size, "tgt_vocab_size": tgt_vocab_size}
    options = {**config.model_dump(), **sizes}
    check_fits_memory(parameter_shapes(**options))
    return TranslationModel(pad_id=PAD_ID, generator=torch.Generator().manual_seed(seed), **options)


def check_model_fits(config: ModelConfig, tokenizers: Tokenizers, *, memory: int | None) -> None:
    """Make sure that the model can be trained in `memory` bytes, before anything is built or replaced for it.

    Raises:
        ResourceError: it cannot.
    """
    check_training_fits(model_shapes(config, tokenizers), memory=memory)


def model_shapes(config: ModelConfig, tokenizers: Tokenizers) -> dict[str, Shape]:
    """The shape of each parameter, by name, of a model for `tokenizers`, known without building it."""
    src, tgt = tokenizers.src.vocab_size, tokenizers.tgt.vocab_size
    return parameter_shapes(src_vocab_size=src, tgt_vocab_size=tgt, **config.model_dump())


def open_run(folder: Path, *, warns: bool = True) -> Run:
    """Open a run folder after checking the files that every command loads.

    `warns` says whether to warn of a manifest without a seal.

    Raises:
        UsageError: it is no run folder.
        DataError: a file is missing or altered.
    """
    if is_exported(folder):
        raise UsageError(
            f"{folder}: an exported model, which translate, evaluate and compare take; "
            "here, name the run that it was exported from"
        )
    recover(folder)
    if not folder.is_dir() or not is_there(folder / MANIFEST):
        what = f"no run folder (it has no {MANIFEST})" if folder.is_dir() else "no such run folder"
        near = sorted(str(path.parent) for path in folder.parent.glob(f"*/{MANIFEST}"))
        hint = f"found: {', '.join(near)}" if near else _how_to_train(folder)
        raise UsageError(f"{folder}: {what}; {hint}")
    manifest = read_run_manifest(folder, warns=warns)
    check_hashes(folder, manifest.sha256, most=MOST_TOKENIZER_BYTES)
    path = folder / RUN_CONFIG
    config = config_of_bytes(read_file(path, most=MOST_CONFIG_BYTES), origin=path)
    return Run(folder, config, manifest.prepared, manifest.sha256, manifest.init_from)


def is_exported(folder: Path) -> bool:
    """Whether there is an exported model in `folder`, and no run.

    A published run may have a `config.json` too, which other tools expect of a model.
    """
    is_run = (folder / checkpoints.CHECKPOINTS).exists()
    return not is_run and any((folder / name).is_file() for name in EXPORTED_MODEL)


def read_tokenizers(folder: Path, names: Iterable[str]) -> Tokenizers:
    """The tokenizers in `folder`, of whose files `names` lists the relative paths."""
    paths = [folder / name for name in names if name.startswith(TOKENIZER)]
    return Tokenizers.from_files(
        {path.name: read_file(path, most=MOST_TOKENIZER_BYTES, below=folder) for path in paths}
    )


def _how_to_train(folder: Path) -> str:
    configs = sorted(Path("configs").rglob(f"{folder.name}.toml"))
    if not configs or folder.exists():
        return f"{command_line('train', 'CONFIG')} makes one"
    place = () if folder == Path("runs") / folder.name else ("--run", folder)
    return f"to train it: {command_line('train', configs[0], *place)}"


def open_runs(folders: Sequence[Path]) -> list[Run]:
    """Open the runs in `folders` as an ensemble.

    Raises:
        UsageError: none is named, one is no run folder, or one has another tokenizer than the first.
        DataError: a file is missing or altered.
    """
    if not folders:
        raise UsageError("no run is named; name one at least")
    first, *others = [open_run(folder) for folder in folders]
    for other in others:
        if tokenizer_hashes(other) != tokenizer_hashes(first):
            raise UsageError(
                f"{other.folder}: its vocabulary is not that of {first.folder}; only runs of the same "
                "tokenizer can translate together"
            )
    return [first, *others]


def tokenizer_hashes(run: Run) -> dict[str, str]:
    """sha256 of the files of the run's tokenizer, by relative path."""
    return {name: digest for name, digest in run.sha256.items() if name.startswith(TOKENIZER)}
