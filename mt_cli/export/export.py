"""`export`: a run's model for another engine, or a small copy of the run, with proof of both.

The template of the exported README.md is export.md.
"""

import logging
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from mt_cli import __version__
from mt_cli.config.load import RUN_CONFIG, dump_config
from mt_cli.config.schema import VAL, ExportTarget, Quantization
from mt_cli.errors import DataError, Option, UsageError
from mt_cli.evaluation.kept import render_markdown, write_card
from mt_cli.export.argos import check_fits_argos, pack_for_argos
from mt_cli.export.ctranslate2_model import write_model
from mt_cli.export.run_copy import copy_run
from mt_cli.machine.files import (
    MANIFEST,
    built_beside,
    check_replaceable,
    has_files,
    locked,
    sha256_of_files,
    write_atomically,
    write_json,
)
from mt_cli.runs.checkpoint import STATE, weights_sha256
from mt_cli.runs.opening import open_model, open_prepared_of, open_run
from mt_cli.runs.run import (
    CHECKPOINTS,
    EXPORTED_MODEL,
    ExportedModel,
    ExportReference,
    Run,
    RunManifest,
)
from mt_cli.text.subwords import normalizing_output
from mt_cli.text.tokenizers import TOKENIZER_FOLDER
from mt_cli.translation.ctranslate2_engine import MAX_SENTENCES, check_installed
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)
PROOF_LINES = 50
FAITHFUL = 0.9
"""Share of identical lines that unquantised weights reach; rounding alone leaves 0.99 of them."""
OWN_FILES = (EXPORTED_MODEL, "config.json", "tokenizer/tokenizer.json")
"""Files that mark a folder as our export; any CTranslate2 model has the first two."""
OWN_FILES_OF_COPY = (MANIFEST, RUN_CONFIG, "last.txt")
RUN_QUANTIZATIONS = ("none", "float16")
"""What the weights of a copied run can be stored as."""


@dataclass(frozen=True)
class Proof:
    """How many lines of val the run and its export translate the same, greedily, on the CPU."""

    n: int
    identical: int

    def __str__(self) -> str:
        return f"{VAL}  identical  {self.identical} of {self.n} lines"


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
        """Whether the proof shows a model other than the run's, which rounding does not excuse."""
        if self.proof is None or self.quantization != "none":
            return False
        return self.proof.identical < FAITHFUL * self.proof.n

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
    """Write the model of `checkpoint` into the new `folder`, ready to translate, with a proof.

    The proof: both translate lines of the validation split. Without the data there is a warning in
    its place. A copied run with the very same weights needs no proof.

    Raises:
        ResourceError: CTranslate2 is not installed, or the folder cannot be written. UsageError: no
            such run or checkpoint; the folder exists, and `overwrite` is off or it is no export;
            Argos Translate cannot use such a model.
        DataError: `data_dir` does not hold the data of the run.
    """
    _check_request(folder, to=to, quantization=quantization, overwrite=overwrite)
    run = open_run(run_dir)
    if to == "argos":
        check_fits_argos(run)
    name = run.resolve_checkpoint(checkpoint)
    needs_proof = to != "run" or quantization != "none"
    prepared = None
    try:
        if needs_proof:
            prepared = open_prepared_of(run, data_dir)
    except DataError as error:
        if data_dir is not None:
            raise
        log.warning("no proof that both translate alike: %s", error)
    with (
        locked(folder),
        built_beside(folder) as partial,
    ):
        if to == "run":
            copy_run(run, partial, checkpoint=name, has_halves=quantization == "float16")
        else:
            _convert(run, partial, checkpoint=name, quantization=quantization)
        proof = None
        if prepared is not None:
            lines = prepared.lines(VAL, "src")[:PROOF_LINES]
            proof = _prove(run, name, open_model(partial), lines, threads=threads)
        if to != "run":
            _write_readme(run, partial, checkpoint=name, quantization=quantization, proof=proof)
        if to == "argos":
            pack_for_argos(run, partial, checkpoint=name, quantization=quantization)
    if to == "run":
        write_card(open_run(folder))  # which says where it is
    log.info("%s of %s exported to %s", name, run_dir, folder)
    return Export(folder, name, quantization, proof)


def _prove(
    run: Run, checkpoint: str, exported: Run | ExportedModel, lines: list[str], *, threads: int
) -> Proof:
    """Greedily, because of all searches that one alone is the same in both engines."""
    search = {"beam_size": 1, "precision": None if isinstance(exported, ExportedModel) else "fp32"}
    options = DecodingOptions(checkpoint, device="cpu", threads=threads, search=search)
    hyps = [
        Translator.of_models([each], options, quiet=True).translate(lines)
        for each in (run, exported)
    ]
    return Proof(len(lines), sum(ours == theirs for ours, theirs in zip(*hyps, strict=True)))


def _check_request(
    folder: Path, *, to: ExportTarget, quantization: Quantization, overwrite: bool
) -> None:
    if to != "run":
        check_installed("export")
    elif quantization not in RUN_QUANTIZATIONS:
        raise UsageError(
            f"a run's weights are not stored as {quantization}; take ",
            Option("quantization"),
            f" {' or '.join(RUN_QUANTIZATIONS)}, or --to ctranslate2",
        )
    check_replaceable(
        folder,
        is_wanted=overwrite,
        is_own=partial(has_files, names=OWN_FILES_OF_COPY if to == "run" else OWN_FILES),
        kind="an exported model",
        ways_out="--overwrite replaces an exported model, or name another folder",
    )
    if any(folder.glob(f"{CHECKPOINTS}/*/{STATE}")):
        raise UsageError(
            f"{folder} holds the state of a training: --overwrite leaves it alone; name another"
        )


def _convert(run: Run, folder: Path, *, checkpoint: str, quantization: Quantization) -> None:
    """Write `checkpoint` of `run` into `folder` as CTranslate2 loads it, and our own files."""
    write_model(
        folder,
        run.load_model(checkpoint=checkpoint, backend="scratch"),
        run.config.model,
        src_tokens=run.tokenizers.src.entries,
        tgt_tokens=run.tokenizers.tgt.entries,
        quantization=quantization,
    )
    for name, data in run.tokenizers.to_files().items():
        is_subwords = name.endswith(".model")
        content = normalizing_output(data) if is_subwords else data
        write_atomically(folder / TOKENIZER_FOLDER / name, content)
    # The engine computes in what the weights are stored as.
    decoding = run.config.decoding.model_copy(update={"precision": "fp32"})
    config = run.config.model_copy(update={"decoding": decoding})
    write_atomically(folder / RUN_CONFIG, dump_config(config).encode())
    weights = weights_sha256(run.checkpoint_folder(checkpoint))
    manifest = RunManifest(
        format=1,
        sha256=sha256_of_files(folder),
        prepared=run.prepared,
        exported_from=ExportReference(str(run.folder), checkpoint, weights, quantization),
        lengths=run.lengths,
    )
    write_json(folder / MANIFEST, manifest.model_dump(exclude_none=True))


def _write_readme(
    run: Run, folder: Path, *, checkpoint: str, quantization: Quantization, proof: Proof | None
) -> None:
    """Tell in `folder` how its model is used."""
    readme = render_markdown(
        files(__package__).joinpath("export.md"),
        run=run,
        checkpoint=checkpoint,
        version=__version__,
        weights="float32" if quantization == "none" else quantization,
        batch_size=run.config.decoding.batch_size or MAX_SENTENCES["cpu"],
        proof=proof,
    )
    write_atomically(folder / "README.md", readme.encode(errors="backslashreplace"))
