"""`export`: a run's model for CTranslate2 or Argos, or a small copy of the run, with a check.

The template of the exported README.md is export.md.
"""

import logging
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from mt_cli import __version__
from mt_cli.config.load import RUN_CONFIG
from mt_cli.config.schema import VAL, ExportTarget, Quantization
from mt_cli.errors import DataError, UsageError
from mt_cli.evaluation.model_card import render_markdown, write_card
from mt_cli.export.argos import check_fits_argos, pack_for_argos
from mt_cli.export.ctranslate2_model import write_export
from mt_cli.export.run_copy import RUN_QUANTIZATIONS, copy_run
from mt_cli.machine.files import (
    MANIFEST,
    built_beside,
    check_replaceable,
    has_files,
    write_atomically,
)
from mt_cli.machine.locks import locked
from mt_cli.machine.process import import_extra
from mt_cli.runs.checkpoint import STATE
from mt_cli.runs.opening import open_model, open_prepared_of, open_run
from mt_cli.runs.run import CHECKPOINTS, EXPORTED_MODEL
from mt_cli.translation.ctranslate2_engine import MAX_SENTENCES
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)

PROOF_LINES = 50
FAITHFUL = 0.9
"""Required share of identical translations without quantization; rounding alone leaves 0.99."""
OWN_FILES = (EXPORTED_MODEL, "config.json", "tokenizer/tokenizer.json")
"""Files that identify our export; every CTranslate2 model has the first two."""
OWN_FILES_OF_COPY = (MANIFEST, RUN_CONFIG, "last.txt")


@dataclass(frozen=True)
class Export:
    """An exported model."""

    folder: Path
    checkpoint: str
    quantization: Quantization
    proof: dict[str, int] | None
    """Result of the check: `n` lines of val that both translated greedily on the CPU, and how many
    translations are `identical`; None if the data was not available.
    """

    @property
    def is_refuted(self) -> bool:
        """Whether the export differs from the run by more than rounding explains."""
        if self.proof is None or self.quantization != "none":
            return False
        return self.proof["identical"] < FAITHFUL * self.proof["n"]


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
    """Write the model of `checkpoint` into the new `folder`, ready to translate, and check it.

    The check: run and export translate lines of the validation split. Without the data, there is
    only a warning. A copy with identical weights is not checked.

    Raises:
        ResourceError: CTranslate2 is not installed. UsageError: the run or checkpoint does not
            exist; the folder exists, and `overwrite` is off or it is not an export; Argos Translate
            cannot use this model.
        DataError: `data_dir` does not have the data of the run.
    """
    _check_request(folder, to=to, quantization=quantization, overwrite=overwrite)
    run = open_run(run_dir)
    if to == "argos":
        check_fits_argos(run)
    name = run.resolve_checkpoint(checkpoint)
    lines: list[str] = []
    if to != "run" or quantization != "none":
        try:
            lines = open_prepared_of(run, data_dir).lines(VAL, "src")[:PROOF_LINES]
        except DataError as error:
            if data_dir is not None:
                raise
            log.warning("could not check that run and export translate alike: %s", error)
    with locked(folder), built_beside(folder) as partial:
        if to == "run":
            copy_run(run, partial, checkpoint=name, has_halves=quantization == "float16")
        else:
            write_export(run, partial, checkpoint=name, quantization=quantization)
        # Greedy, because it is the only search that is the same in both engines.
        precision = "fp32" if to == "run" else None
        search = {"beam_size": 1, "temperature": 0.0, "precision": precision}
        options = DecodingOptions(name, device="cpu", threads=threads, search=search)
        hyps = []
        for each in (run, open_model(partial)) if lines else ():
            hyps.append(Translator.of_models([each], options).translate(lines))
        proof = None
        if lines:
            identical = sum(ours == theirs for ours, theirs in zip(*hyps, strict=True))
            proof = {"n": len(lines), "identical": identical}
        if to != "run":
            readme = render_markdown(
                files(__package__).joinpath("export.md"),
                run=run,
                checkpoint=name,
                version=__version__,
                weights="float32" if quantization == "none" else quantization,
                batch_size=run.config.decoding.batch_size or MAX_SENTENCES["cpu"],
                proof=proof,
            )
            write_atomically(partial / "README.md", readme.encode(errors="backslashreplace"))
        if to == "argos":
            pack_for_argos(run, partial, checkpoint=name, quantization=quantization)
    if to == "run":
        write_card(open_run(folder))  # the card names the run's folder
    log.info("exported %s of %s to %s", name, run_dir, folder)
    return Export(folder, name, quantization, proof)


def _check_request(
    folder: Path, *, to: ExportTarget, quantization: Quantization, overwrite: bool
) -> None:
    if to != "run":
        import_extra("ctranslate2", extra="export", needed_by="export")
    elif quantization not in RUN_QUANTIZATIONS:
        raise UsageError(f"--to run takes --quantization {' or '.join(RUN_QUANTIZATIONS)}")
    check_replaceable(
        folder,
        is_wanted=overwrite,
        is_own=partial(has_files, names=OWN_FILES_OF_COPY if to == "run" else OWN_FILES),
        kind="an exported model",
        ways_out="add --overwrite to replace it, or choose another folder",
    )
    if any(folder.glob(f"{CHECKPOINTS}/*/{STATE}")):
        raise UsageError(f"{folder}: contains a training run; choose another folder")
