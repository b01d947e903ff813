"""The `export` command: a run's model as a folder that CTranslate2 translates with, and proof that it does.

Owns what lies in that folder and that it is whole; knows nothing of the model's inside.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.checkpoint import MODEL, checked_hashes
from mt_cli.artefacts.exported_run import complete_export
from mt_cli.artefacts.files import write_atomically
from mt_cli.artefacts.folders import built_beside, check_replaceable
from mt_cli.artefacts.prepared import Prepared, open_prepared_of
from mt_cli.artefacts.run import EXPORTED_MODEL, ParentReference, Run, open_run
from mt_cli.errors import DataError
from mt_cli.machine.device import memory_errors_explained
from mt_cli.stages.export.conversion import Quantization, write_model
from mt_cli.stages.export.proof import Proof, prove
from mt_cli.stages.export.readme import readme_of
from mt_cli.translation.exported_searcher import check_installed

log = logging.getLogger(__name__)

OWN_FILES = (*EXPORTED_MODEL, "tokenizer/tokenizer.json")
"""By which an exported model is known; every other CTranslate2 model has the first two."""


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
    checkpoint: str = "best",
    quantization: Quantization = "none",
    data_dir: Path | None = None,
    threads: int = 0,
    overwrite: bool = False,
) -> Export:
    """Write the model of `checkpoint` into the new `folder`, whole and ready to translate; prove it the same.

    The proof: both translate the validation split, greedily, on the CPU. Without the data there is a warning
    in its place.

    Raises:
        ResourceError: CTranslate2 is not installed, or the folder cannot be written.
        UsageError: no such run or checkpoint; the folder exists, and `overwrite` is off or it is no export.
        DataError: `data_dir` does not hold the data of the run.
    """
    check_installed("export")
    check_replaceable(
        folder,
        is_wanted=overwrite,
        own_files=OWN_FILES,
        kind="an exported model",
        ways_out="--overwrite replaces an exported model, or name another folder",
    )
    run = open_run(run_dir)
    name = run.checkpoint_folder(checkpoint).name
    prepared = _data_of(run, data_dir)
    with memory_errors_explained("the model does not fit"), built_beside(folder) as partial:
        model = run.load_model(checkpoint=name, backend="scratch")
        write_model(
            partial,
            model,
            run.config.model,
            src_tokens=run.tokenizers.src.entries,
            tgt_tokens=run.tokenizers.tgt.entries,
            quantization=quantization,
        )
        for file_name, data in run.tokenizers.to_files().items():
            write_atomically(partial / "tokenizer" / file_name, data)
        weights = checked_hashes(run.checkpoint_folder(name), names=[MODEL])[MODEL]
        exported = complete_export(
            partial, run, quantization=quantization, checkpoint=ParentReference(str(run_dir), name, weights)
        )
        proof = None if prepared is None else prove(run, model, exported, prepared, threads=threads)
        write_atomically(partial / "README.md", readme_of(run, name, quantization, proof).encode())
    log.info("%s of %s exported to %s", name, run_dir, folder)
    return Export(folder, name, quantization, proof)


def _data_of(run: Run, data_dir: Path | None) -> Prepared | None:
    try:
        return open_prepared_of(run, data_dir)
    except DataError as error:
        if data_dir is not None:
            raise
        log.warning("no proof that both engines agree: %s", error)
        return None
