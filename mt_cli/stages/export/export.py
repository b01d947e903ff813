"""The `export` command: a run's model for CTranslate2, or a small copy of the run; and proof of what it does.

Owns what lies in that folder and that it is whole; knows nothing of the model's inside.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.checkpoint import STATE, weights_sha256
from mt_cli.artefacts.checkpoints import CHECKPOINTS
from mt_cli.artefacts.exported_run import ExportedRun, complete_export
from mt_cli.artefacts.files import MANIFEST, write_atomically
from mt_cli.artefacts.folders import built_beside, check_replaceable
from mt_cli.artefacts.prepared import Prepared, open_prepared_of
from mt_cli.artefacts.run import EXPORTED_MODEL, Run, open_run
from mt_cli.artefacts.run_copy import copy_run
from mt_cli.artefacts.run_manifest import CheckpointReference
from mt_cli.config import RUN_CONFIG, ExportTarget, Quantization
from mt_cli.errors import DataError, Option, UsageError
from mt_cli.machine.device import memory_errors_explained
from mt_cli.model.translation_model import TranslationModel
from mt_cli.stages.export.conversion import write_model
from mt_cli.stages.export.proof import Proof, prove
from mt_cli.stages.export.readme import readme_of
from mt_cli.stages.model_card import write_card
from mt_cli.translation.exported_searcher import check_installed

log = logging.getLogger(__name__)

OWN_FILES: Mapping[ExportTarget, tuple[str, ...]] = {
    "ctranslate2": (*EXPORTED_MODEL, "tokenizer/tokenizer.json"),
    "run": (MANIFEST, RUN_CONFIG, "last.txt"),
}
"""By which what was exported is known; every other CTranslate2 model has the first two of its files."""
OF_RUNS = ("none", "float16")
"""What the weights of a copied run can be stored as."""


@dataclass(frozen=True)
class Export:
    """An exported model."""

    folder: Path
    checkpoint: str
    quantization: Quantization
    proof: Proof | None
    """None where the validation data were not at hand."""

    @property
    def is_refuted(self) -> bool:
        """Whether the proof shows another model than the run's, which quantisation does not excuse."""
        return self.proof is not None and self.quantization == "none" and not self.proof.is_faithful

    def as_json(self) -> dict[str, object]:
        """The form that `export --json` prints."""
        return {
            "folder": str(self.folder),
            "checkpoint": self.checkpoint,
            "quantization": self.quantization,
            "proof": None if self.proof is None else self.proof.as_json(),
        }

    def __str__(self) -> str:
        return str(self.folder) if self.proof is None else f"{self.folder}\n{self.proof}"


def export_run(
    run_dir: Path,
    folder: Path,
    *,
    to: ExportTarget = "ctranslate2",
    checkpoint: str = "best",
    quantization: Quantization = "none",
    data_dir: Path | None = None,
    threads: int = 0,
    overwrite: bool = False,
) -> Export:
    """Write the model of `checkpoint` into the new `folder`, whole and ready to translate; prove it the same.

    The proof: both translate the validation split, greedily, on the CPU. Without the data there is a warning
    in its place. A copied run with the very same weights needs no proof.

    Raises:
        ResourceError: CTranslate2 is not installed, or the folder cannot be written.
        UsageError: no such run or checkpoint; the folder exists, and `overwrite` is off or it is no export.
        DataError: `data_dir` does not hold the data of the run.
    """
    _check_options(to, quantization)
    check_replaceable(
        folder,
        is_wanted=overwrite,
        own_files=OWN_FILES[to],
        kind="an exported model",
        ways_out="--overwrite replaces an exported model, or name another folder",
    )
    if any(folder.glob(f"{CHECKPOINTS}/*/{STATE}")):
        raise UsageError(f"{folder} holds the state of a training: --overwrite leaves it alone; name another")
    run = open_run(run_dir)
    name = run.resolve_checkpoint(checkpoint)
    needs_proof = to == "ctranslate2" or quantization != "none"
    prepared = _data_of(run, data_dir) if needs_proof else None
    with memory_errors_explained("the model does not fit"), built_beside(folder) as partial:
        model = run.load_model(checkpoint=name, backend="scratch")
        exported: Run | ExportedRun
        if to == "run":
            copy_run(run, partial, checkpoint=name, has_halves=quantization == "float16")
            exported = open_run(partial, warns=False)
        else:
            exported = _convert(run, model, partial, checkpoint=name, quantization=quantization)
        proof = None if prepared is None else prove(run, model, exported, prepared, threads=threads)
        if to == "ctranslate2":
            write_atomically(
                partial / "README.md",
                readme_of(run, name, quantization, proof).encode(errors="backslashreplace"),
            )
    if to == "run":
        write_card(open_run(folder))  # which says where it is
    log.info("%s of %s exported to %s", name, run_dir, folder)
    return Export(folder, name, quantization, proof)


def _check_options(to: ExportTarget, quantization: Quantization) -> None:
    if to == "ctranslate2":
        check_installed("export")
    elif quantization not in OF_RUNS:
        raise UsageError(
            f"a run's weights are not stored as {quantization}; take ",
            Option("quantization"),
            f" {' or '.join(OF_RUNS)}, or --to ctranslate2",
        )


def _convert(
    run: Run, model: TranslationModel, folder: Path, *, checkpoint: str, quantization: Quantization
) -> ExportedRun:
    """Write `model`, that of `checkpoint` of `run`, into `folder` as CTranslate2 loads it."""
    write_model(
        folder,
        model,
        run.config.model,
        src_tokens=run.tokenizers.src.entries,
        tgt_tokens=run.tokenizers.tgt.entries,
        quantization=quantization,
    )
    for name, data in run.tokenizers.to_files().items():
        write_atomically(folder / "tokenizer" / name, data)
    weights = weights_sha256(run.checkpoint_folder(checkpoint), run.parameter_shapes)
    origin = CheckpointReference(str(run.folder), checkpoint, weights)
    return complete_export(folder, run, quantization=quantization, checkpoint=origin)


def _data_of(run: Run, data_dir: Path | None) -> Prepared | None:
    try:
        return open_prepared_of(run, data_dir)
    except DataError as error:
        if data_dir is not None:
            raise
        log.warning("no proof that both translate alike: %s", error)
        return None
