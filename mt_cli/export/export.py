"""`export`: a run's model for CTranslate2 or Argos, or a small copy of the run, with proof of both.

The template of the exported README.md is export.md.
"""

import json
import logging
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch

from mt_cli import __version__
from mt_cli.config.load import RUN_CONFIG, dump_config
from mt_cli.config.schema import VAL, ExportTarget, ModelConfig, Quantization
from mt_cli.errors import DataError, UsageError
from mt_cli.evaluation.kept import WEIGHTS, render_markdown, write_card
from mt_cli.machine.files import (
    MANIFEST,
    MAX_TEXT_BYTES,
    built_beside,
    check_replaceable,
    has_files,
    locked,
    read_file,
    sha256_of_files,
    write_atomically,
    write_json,
)
from mt_cli.machine.process import import_extra
from mt_cli.model.model import TranslationModel
from mt_cli.model.transformer import PositionalEncoding
from mt_cli.runs.checkpoint import STATE, read_state, read_weights, save_checkpoint, weights_sha256
from mt_cli.runs.metrics import read_metrics
from mt_cli.runs.run import (
    CHECKPOINTS,
    ENVIRONMENT,
    EVALUATIONS,
    EXPORTED_MODEL,
    METRICS,
    POINTERS,
    SCORES,
    STATUS,
    CheckpointReference,
    Run,
    RunManifest,
    open_model,
    open_prepared_of,
    open_run,
)
from mt_cli.text import BOS_ID, EOS_ID, SPECIALS, UNK_ID
from mt_cli.text.language import language_name
from mt_cli.text.subwords import normalizing_output
from mt_cli.text.tokenizers import TOKENIZER_FOLDER
from mt_cli.translation.ctranslate2_engine import MAX_SENTENCES
from mt_cli.translation.options import NEVER_CHOSEN, DecodingOptions
from mt_cli.translation.translator import Translator

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec

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
class Export:
    """An exported model."""

    folder: Path
    checkpoint: str
    quantization: Quantization
    proof: dict[str, int] | None
    """`n` lines of val that both translated greedily, on the CPU, how many are `identical`; None
    where they were not at hand.
    """

    @property
    def is_refuted(self) -> bool:
        """Whether it is another model than the run's, which rounding does not excuse."""
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
    """Write the model of `checkpoint` into the new `folder`, ready to translate, with a proof.

    The proof: both translate lines of the validation split. Without the data there is a warning in
    its place. A copied run with the very same weights needs no proof.

    Raises:
        ResourceError: CTranslate2 is not installed. UsageError: no such run or checkpoint; the
            folder exists, and `overwrite` is off or it is no export; Argos Translate cannot use
            such a model.
        DataError: `data_dir` does not hold the data of the run.
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
            log.warning("no proof that both translate alike: %s", error)
    with locked(folder), built_beside(folder) as partial:
        if to == "run":
            copy_run(run, partial, checkpoint=name, has_halves=quantization == "float16")
        else:
            _convert(run, partial, checkpoint=name, quantization=quantization)
        # Greedily, because of all searches that one alone is the same in both engines.
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
        write_card(open_run(folder))  # which says where it is
    log.info("%s of %s exported to %s", name, run_dir, folder)
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
        ways_out="--overwrite replaces an exported model, or name another folder",
    )
    if any(folder.glob(f"{CHECKPOINTS}/*/{STATE}")):
        raise UsageError(f"{folder} holds the state of a training; name another")


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
    reference = CheckpointReference(
        folder=str(run.folder),
        checkpoint=checkpoint,
        sha256=run.weights_sha256(checkpoint),
        quantization=quantization,
    )
    manifest = RunManifest(
        sha256=sha256_of_files(folder),
        prepared=run.manifest.prepared,
        exported_from=reference,
        lengths=run.manifest.lengths,
    )
    write_json(folder / MANIFEST, manifest.model_dump(exclude_none=True))


def copy_run(run: Run, folder: Path, *, checkpoint: str, has_halves: bool) -> None:
    """Fill `folder` with what `run` and its `checkpoint` need, in 16 bits if it `has_halves`.

    Kept: config, tokenizer, what training measured, and scores if the weights are the same to the
    bit. Left out: other checkpoints, the optimizer's state, the log, and the texts of evaluations,
    which belong to their corpus.

    Raises:
        DataError: a file of the run is damaged.
        OSError: the folder cannot be written.
    """
    source = run.checkpoint_folder(checkpoint)
    dtype = torch.float16 if has_halves else torch.float32
    weights = read_weights(source, run.parameter_shapes)
    weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
    state = read_state(source)
    if state.best_step != state.step:  # it is all that there is, and so the best
        state = replace(state, best_step=state.step, best_score=None)
    save_checkpoint(folder / CHECKPOINTS / source.name, weights, state=state)
    for pointer in POINTERS:
        write_atomically(folder / f"{pointer}.txt", f"{source.name}\n".encode())
    names = [MANIFEST, *run.manifest.sha256]
    names += [name for name in (ENVIRONMENT, STATUS, METRICS) if (run.folder / name).exists()]
    own = run.weights_sha256(source.name)
    copied = weights_sha256(folder / CHECKPOINTS / source.name)
    if own == copied:
        names += [f"{EVALUATIONS}/{each.name}/{SCORES}" for each in run.kept_evaluations()]
    for name in names:
        write_atomically(folder / name, read_file(run.folder / name, max_bytes=MAX_TEXT_BYTES))
    if own != copied and METRICS in names:
        _mark_validation(run, folder / METRICS, step=state.step, weights=own)
    if own != copied and STATUS in names:
        write_json(folder / STATUS, {**run.read_facts(STATUS), "best_score": None})


def _mark_validation(run: Run, path: Path, *, step: int, weights: str) -> None:
    """Note in the copied metrics that the validation after `step` was of other `weights`."""
    records = []
    for record in read_metrics(run.metrics_path):
        is_of_checkpoint = record["kind"] == "validation" and record["step"] == step
        records.append({**record, WEIGHTS: weights} if is_of_checkpoint else record)
    write_atomically(path, "".join(f"{json.dumps(each)}\n" for each in records).encode())


NEVER_CHOSEN_BIAS = -1e4
"""On the logits of ids that are ruled out: below any model's, and still a number in float16."""


def write_model(
    folder: Path,
    model: TranslationModel,
    config: ModelConfig,
    *,
    src_tokens: Sequence[str],
    tgt_tokens: Sequence[str],
    quantization: Quantization = "none",
    ruled_out: Sequence[int] = (),
) -> None:
    """Write `model`, made after `config`, into `folder` as CTranslate2 loads it.

    `src_tokens` and `tgt_tokens` name the entries of the vocabularies, by id. Target ids that are
    `ruled_out` are never found, and their probability is shared out.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        # Only a pre-norm model is given final norms here. CTranslate2 runs them with either kind,
        # so `stack.pre_norm` below says which it is.
        pre_norm=True,
        no_final_norm=not config.final_norm,
        # Its GELU is the exact one, as ours is; GELUTanh approximates it.
        activation={"relu": Activation.RELU, "gelu": Activation.GELU}[config.activation],
        # Layer and heads (0 is the mean of all) whose attention it returns: see
        # `Engine.cross_attention`.
        alignment_layer=max(0, config.decoder_layers - 2),
        alignment_heads=0,
    )
    _fill(spec, model, config)
    spec.decoder.projection.bias[list(ruled_out)] = NEVER_CHOSEN_BIAS
    spec.register_source_vocabulary(list(src_tokens))
    spec.register_target_vocabulary(list(tgt_tokens))
    spec.config.unk_token = SPECIALS[UNK_ID]
    spec.config.bos_token = SPECIALS[BOS_ID]
    spec.config.eos_token = SPECIALS[EOS_ID]
    spec.config.decoder_start_token = SPECIALS[BOS_ID]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=None if quantization == "none" else quantization)
    spec.save(str(folder))


def _fill(spec: "TransformerSpec", model: TranslationModel, config: ModelConfig) -> None:
    # Copies of all, because quantizing changes them in place; fixed positions too, which no state
    # has.
    tensors = {
        **model.state_dict(),
        "src_positions.weight": model.src_positions.weight.detach(),
        "tgt_positions.weight": model.tgt_positions.weight.detach(),
    }
    weights = {name: tensor.float().cpu().numpy().copy() for name, tensor in tensors.items()}

    def fill_linear(linear: "LinearSpec", name: str) -> None:
        linear.weight = weights[f"{name}.weight"]
        linear.bias = weights[f"{name}.bias"]

    def fill_norm(norm: "LayerNormSpec", name: str) -> None:
        norm.gamma = weights[f"{name}.weight"]
        norm.beta = weights[f"{name}.bias"]

    def fill_attention(attention: "MultiHeadAttentionSpec", name: str) -> None:
        """Self-attention has one projection for q, k and v; cross-attention has q's apart."""
        *inputs, output = attention.linear
        cuts = [config.d_model] if len(inputs) == 2 else []
        matrices = np.split(weights[f"{name}.in_proj_weight"], cuts)
        biases = np.split(weights[f"{name}.in_proj_bias"], cuts)
        for linear, matrix, bias in zip(inputs, matrices, biases, strict=True):
            linear.weight = matrix
            linear.bias = bias
        fill_linear(output, f"{name}.out_proj")

    spec.encoder.embeddings[0].weight = weights["src_embedding.weight"]
    spec.encoder.position_encodings.encodings = weights["src_positions.weight"]
    spec.decoder.embeddings.weight = weights["tgt_embedding.weight"]
    spec.decoder.position_encodings.encodings = weights["tgt_positions.weight"]
    for stack, side in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        stack.pre_norm = config.norm == "pre"
        stack.scale_embeddings = config.scale_embeddings
        if config.final_norm:
            fill_norm(stack.layer_norm, f"backend.{side}.norm")
        for number, layer in enumerate(stack.layer):
            name = f"backend.{side}.layers.{number}"
            sublayers = [layer.self_attention]
            fill_attention(layer.self_attention, f"{name}.self_attn")
            if stack is spec.decoder:
                sublayers.append(layer.attention)
                fill_attention(layer.attention, f"{name}.multihead_attn")
            sublayers.append(layer.ffn)
            fill_linear(layer.ffn.linear_0, f"{name}.linear1")
            fill_linear(layer.ffn.linear_1, f"{name}.linear2")
            for place, sublayer in enumerate(sublayers, start=1):
                fill_norm(sublayer.layer_norm, f"{name}.norm{place}")
    output = spec.decoder.projection
    output.weight = weights["output.weight"]
    output.bias = weights.get("output.bias", np.zeros(len(output.weight), np.float32))


CTRANSLATE2_MAX_INPUT = 1024
"""Tokens of an input, unless it is told otherwise."""


def check_fits_argos(run: Run) -> None:
    """Refuse a `run` whose model Argos Translate cannot use.

    It has one SentencePiece model for both sides, changes no letter and splits no sentence.
    """
    found = run.tokenizers
    wanted = {
        "tokenizer.kind bpe or unigram": found.kind != "spacy",
        "tokenizer.joint true": found.joint,
        "data.lowercase false": not found.options.lowercase,
        "model.positions sinusoidal": run.config.model.positions == "sinusoidal",
    }
    if missing := [name for name, is_so in wanted.items() if not is_so]:
        raise UsageError(f"{run.folder}: Argos Translate needs {', '.join(missing)}")


def pack_for_argos(run: Run, folder: Path, *, checkpoint: str, quantization: Quantization) -> None:
    """Write a package (a zip) of `checkpoint` into `folder`, where the run has been exported.

    Argos Translate splits no long sentences and rules out no symbols, so its model has more
    positions and does the second by itself.
    """
    model = run.load_model(checkpoint=checkpoint, backend="scratch")
    max_len = max(CTRANSLATE2_MAX_INPUT, model.max_len)
    positions = PositionalEncoding(max_len, run.config.model.d_model, is_learned=False)
    model.src_positions = positions
    model.tgt_positions = positions
    options = run.tokenizers.options
    metadata: dict[str, object] = {"package_version": "1.0", "argos_version": "1.11", "links": []}
    for side, code in (("from", options.src_lang), ("to", options.tgt_lang)):
        metadata |= {f"{side}_code": code, f"{side}_name": language_name(code)}
    name = f"translate-{options.src_lang}_{options.tgt_lang}"
    with (
        TemporaryDirectory(dir=folder) as place,
        zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as package,
    ):
        write_model(
            Path(place),
            model,
            run.config.model,
            src_tokens=run.tokenizers.src.entries,
            tgt_tokens=run.tokenizers.tgt.entries,
            quantization=quantization,
            ruled_out=NEVER_CHOSEN,
        )
        package.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=2))
        package.write(folder / TOKENIZER_FOLDER / "joint.model", f"{name}/sentencepiece.model")
        for path in sorted(Path(place).iterdir()):
            package.write(path, f"{name}/model/{path.name}")
