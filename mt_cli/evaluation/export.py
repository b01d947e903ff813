"""`export`: a run's model for another engine, or a small copy of the run; and proof that it
translates alike.

The README.md of what is exported stands in export.md, a template.

Letters: D d_model.
"""

import json
import logging
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from mt_cli import __version__
from mt_cli.config.load import RUN_CONFIG, dump_config
from mt_cli.config.schema import ExportTarget, ModelConfig, Quantization
from mt_cli.data.prepared import Prepared
from mt_cli.errors import DataError, Option, UsageError
from mt_cli.evaluation.card import WEIGHTS, render_markdown, write_card
from mt_cli.evaluation.scoring import score_bleu
from mt_cli.machine.device import memory_errors_explained
from mt_cli.machine.files import (
    MANIFEST,
    MOST_TEXT_BYTES,
    built_beside,
    check_replaceable,
    locked,
    read_file,
    sha256_of_files,
    write_atomically,
    write_json,
)
from mt_cli.machine.terminal import progress_shown
from mt_cli.model.transformer import Positions
from mt_cli.model.translation_model import TranslationModel
from mt_cli.runs.checkpoint import STATE, read_state, read_weights, save_checkpoint, weights_sha256
from mt_cli.runs.run import (
    CHECKPOINTS,
    ENVIRONMENT,
    EVALUATIONS,
    EXPORTED_MODEL,
    METRICS,
    POINTERS,
    SCORES,
    STATUS,
    TOKENIZER,
    ExportReference,
    Run,
    RunManifest,
    open_prepared_of,
    open_run,
)
from mt_cli.text import BOS_ID, EOS_ID, SPECIALS, UNK_ID
from mt_cli.translation.ctranslate2 import ENGINE, SENTENCES_AT_ONCE, check_installed
from mt_cli.translation.lines import NEVER_SAID
from mt_cli.translation.translator import DecodingOptions, Translator

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec

log = logging.getLogger(__name__)
SPLIT = "val"
FAITHFUL = 0.9
"""Share of identical lines that unquantised weights reach; rounding alone leaves 0.99 of them."""
WARM_UP_LINES = 64
CTRANSLATE2_CUTS_AT = 1024
"""Tokens of an input, unless it is told otherwise."""
OWN_FILES = (EXPORTED_MODEL, "config.json", "tokenizer/tokenizer.json")
"""Files that mark a folder as our export; any CTranslate2 model has the first two."""
OWN_FILES_OF_COPY = (MANIFEST, RUN_CONFIG, "last.txt")
OF_RUNS = ("none", "float16")
"""What the weights of a copied run can be stored as."""


@dataclass(frozen=True)
class Proof:
    """What two engines made of the split, side by side."""

    share: float
    """Of the sentences whose translations are the same, letter by letter."""
    text: str
    document: dict[str, object]
    """A part of what `export --json` prints."""


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
        return (
            self.proof is not None and self.quantization == "none" and self.proof.share < FAITHFUL
        )

    def as_json(self) -> dict[str, object]:
        """The form that `export --json` prints."""
        return {**vars(self), "proof": None if self.proof is None else self.proof.document}

    def __str__(self) -> str:
        return str(self.folder) if self.proof is None else f"{self.folder}\n{self.proof.text}"


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
    """Write the model of `checkpoint` into the new `folder`, whole and ready to translate; prove it
    the same.

    The proof: both translate the validation split, greedily, on the CPU. Without the data there is
    a warning in its place. A copied run with the very same weights needs no proof.

    Raises:
        ResourceError: CTranslate2 is not installed, or the folder cannot be written. UsageError: no
            such run or checkpoint; the folder exists, and `overwrite` is off or it is no export;
            Argos Translate cannot use such a model.
        DataError: `data_dir` does not hold the data of the run.
    """
    _check_wishes(folder, to=to, quantization=quantization, overwrite=overwrite)
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
        memory_errors_explained("the model does not fit"),
        locked(folder),
        built_beside(folder) as partial,
    ):
        if to == "run":
            copy_run(run, partial, checkpoint=name, has_halves=quantization == "float16")
        else:
            _convert(run, partial, checkpoint=name, quantization=quantization, to=to)
        proof = None
        if prepared is not None:
            exported = open_run(partial, may_be_exported=True)
            proof = prove(run, name, exported, prepared, threads=threads)
        if to != "run":
            _write_readme(run, partial, checkpoint=name, quantization=quantization, proof=proof)
        if to == "argos":
            pack_for_argos(run, partial)
    if to == "run":
        write_card(open_run(folder))  # which says where it is
    log.info("%s of %s exported to %s", name, run_dir, folder)
    return Export(folder, name, quantization, proof)


def _check_wishes(
    folder: Path, *, to: ExportTarget, quantization: Quantization, overwrite: bool
) -> None:
    if to != "run":
        check_installed("export")
    elif quantization not in OF_RUNS:
        raise UsageError(
            f"a run's weights are not stored as {quantization}; take ",
            Option("quantization"),
            f" {' or '.join(OF_RUNS)}, or --to ctranslate2",
        )
    check_replaceable(
        folder,
        is_wanted=overwrite,
        own_files=OWN_FILES_OF_COPY if to == "run" else OWN_FILES,
        kind="an exported model",
        ways_out="--overwrite replaces an exported model, or name another folder",
    )
    if any(folder.glob(f"{CHECKPOINTS}/*/{STATE}")):
        raise UsageError(
            f"{folder} holds the state of a training: --overwrite leaves it alone; name another"
        )


def prove(run: Run, checkpoint: str, exported: Run, prepared: Prepared, *, threads: int) -> Proof:
    """Translate and score the split of `prepared` with `checkpoint` of `run` and with what was
    `exported`.
    """
    sources, refs = prepared.lines(SPLIT, "src"), prepared.lines(SPLIT, "tgt")
    data = run.config.data

    def translator_of(run: Run) -> Translator:
        # Of all searches, greedy alone is the same in both: what differs comes from the weights.
        precision = "fp32" if run.exported_from is None else None
        search = {"beam_size": 1, "length_penalty": 0.0, "precision": precision}
        options = DecodingOptions(
            checkpoint, device="cpu", threads=threads, search=search, owns_process=True
        )
        return Translator.of_runs([run], options, quiet=run is exported)

    name = "the copy" if exported.exported_from is None else ENGINE
    engines = {"mt_cli": translator_of(run), name: translator_of(exported)}
    log.info(
        "translating %s with both  sentences %d  device cpu  threads %d",
        SPLIT, len(sources), torch.get_num_threads(),
    )  # fmt: skip
    engines[name].translate(sources[:WARM_UP_LINES])  # CTranslate2 keeps memory once it has it
    hyps, texts, documents = {}, [], {}
    for engine, translator in engines.items():
        label = f"translating {SPLIT} with {engine}"
        with progress_shown(label, unit="lines", total=len(sources)) as update:
            begin = time.perf_counter()
            hyps[engine] = translator.translate(sources, on_progress=update)
            sentences_per_s = len(sources) / (time.perf_counter() - begin)
        bleu = score_bleu(hyps[engine], refs, lang=data.tgt_lang, lowercase=data.lowercase)
        texts.append(f"{SPLIT}  {engine:<11}  {bleu}  {sentences_per_s:.0f} sentences/s")
        documents[engine] = {"bleu": bleu.details, "sentences_per_s": sentences_per_s}
    # What it calculates in on this machine.
    compute_type = documents[name]["compute_type"] = getattr(
        engines[name].engine, "compute_type", "float32"
    )
    n, identical = len(sources), sum(map(str.__eq__, *hyps.values()))
    texts[-1] += (
        f"  {compute_type}\n{SPLIT}  identical    {identical} of {n} lines, {identical / n:.1%}"
    )
    document = {"split": SPLIT, "n": n, "identical": identical, **documents}
    return Proof(identical / n, "\n".join(texts), document)


def _convert(
    run: Run, folder: Path, *, checkpoint: str, quantization: Quantization, to: ExportTarget
) -> None:
    """Write the model of `checkpoint` of `run` into `folder` as CTranslate2 loads it, and what it
    is.
    """
    model = run.load_model(checkpoint=checkpoint, backend="scratch")
    if to == "argos":  # which splits no long sentences: CTranslate2 would fail where positions end
        model.src_positions = model.tgt_positions = Positions(
            max(CTRANSLATE2_CUTS_AT, model.max_len), run.config.model.d_model, learned=False
        )
    write_model(
        folder,
        model,
        run.config.model,
        src_tokens=run.tokenizers.src.entries,
        tgt_tokens=run.tokenizers.tgt.entries,
        quantization=quantization,
    )
    for name, data in run.tokenizers.to_files().items():
        write_atomically(folder / TOKENIZER / name, data)
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
        "export.md",
        run=run,
        checkpoint=checkpoint,
        version=__version__,
        weights="float32" if quantization == "none" else quantization,
        batch_size=run.config.decoding.batch_size or SENTENCES_AT_ONCE["cpu"],
        proof=proof,
    )
    write_atomically(folder / "README.md", readme.encode(errors="backslashreplace"))


# A package for Argos Translate, which LibreTranslate uses too


def check_fits_argos(run: Run) -> None:
    """Argos Translate has one SentencePiece model for both sides, changes no letter, splits no
    sentence.

    Raises:
        UsageError: the model of `run` needs other things.
    """
    found, config = run.tokenizers, run.config
    wanted = {
        "tokenizer.kind bpe or unigram": found.kind != "spacy",
        "tokenizer.joint true": found.joint,
        "data.lowercase false": not found.options.lowercase,
        "model.positions sinusoidal": config.model.positions == "sinusoidal",
    }
    if missing := [name for name, is_so in wanted.items() if not is_so]:
        raise UsageError(
            f"{run.folder}: Argos Translate needs a model trained with {', '.join(missing)}"
        )


def pack_for_argos(run: Run, folder: Path) -> None:
    """Write a package of the model in `folder`, which was exported from `run`, beside it there: a
    zip.
    """
    import spacy

    options = run.tokenizers.options
    metadata: dict[str, object] = {"package_version": "1.0", "argos_version": "1.11", "links": []}
    for side, code in (("from", options.src_lang), ("to", options.tgt_lang)):
        language = code
        with suppress(ImportError):  # spaCy does not know every language
            language = spacy.util.get_lang_class(code).__name__
        metadata |= {f"{side}_code": code, f"{side}_name": language}
    name = f"translate-{options.src_lang}_{options.tgt_lang}"
    model = [
        path
        for path in folder.glob("*")
        if path.suffix in (".bin", ".json") and path.name != MANIFEST
    ]
    with zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=2))
        package.write(folder / TOKENIZER / "joint.model", f"{name}/sentencepiece.model")
        for path in sorted(model):
            package.write(path, f"{name}/model/{path.name}")


# A copy of a run, small and as usable as the run


def copy_run(run: Run, folder: Path, *, checkpoint: str, has_halves: bool) -> None:
    """Fill `folder` with `run` as far as the weights of `checkpoint`, with `has_halves` in 16 bits
    each.

    Kept: config, tokenizer, what training measured, and scores if the weights are the same to the
    bit. Left out: other checkpoints, the optimiser's state, the log, and the texts of evaluations,
    which belong to their corpus.

    Raises:
        DataError: a file of the run is damaged.
        ResourceError: the folder cannot be written.
    """
    source = run.checkpoint_folder(checkpoint)
    dtype = torch.float16 if has_halves else torch.float32
    weights = {
        name: each.to(dtype) for name, each in read_weights(source, run.parameter_shapes).items()
    }
    state = read_state(source)
    if state.best_step != state.step:  # it is all that there is, and so the best
        state = replace(state, best_step=state.step, best_score=None)
    save_checkpoint(folder / CHECKPOINTS / source.name, weights, state=state)
    for pointer in POINTERS:
        write_atomically(folder / f"{pointer}.txt", f"{source.name}\n".encode())
    names = [MANIFEST, *run.sha256]
    names += [name for name in (ENVIRONMENT, STATUS, METRICS) if (run.folder / name).exists()]
    own = weights_sha256(source)
    copied = weights_sha256(folder / CHECKPOINTS / source.name)
    if own == copied:
        names += [f"{EVALUATIONS}/{each.name}/{SCORES}" for each in run.kept_evaluations()]
    for name in names:
        write_atomically(folder / name, read_file(run.folder / name, most=MOST_TEXT_BYTES))
    if own != copied and METRICS in names:
        _mark_validation(run, folder / METRICS, step=state.step, weights=own)
    if own != copied and STATUS in names:
        write_json(folder / STATUS, {**run.read_facts(STATUS), "best_score": None})


def _mark_validation(run: Run, path: Path, *, step: int, weights: str) -> None:
    """Note in the copied metrics that the validation after `step` updates was of other `weights`."""
    records = []
    for record in run.metrics():
        is_of_checkpoint = record["kind"] == "validation" and record["step"] == step
        records.append({**record, WEIGHTS: weights} if is_of_checkpoint else record)
    write_atomically(path, "".join(f"{json.dumps(each)}\n" for each in records).encode())


# The model in the form that CTranslate2 reads

NEVER_SAID_BIAS = -1e4
"""On the logits of `NEVER_SAID`: below those of any model, and still a number in float16."""


def write_model(
    folder: Path,
    model: TranslationModel,
    config: ModelConfig,
    *,
    src_tokens: Sequence[str],
    tgt_tokens: Sequence[str],
    quantization: Quantization = "none",
) -> None:
    """Write `model`, made after `config`, into `folder` as CTranslate2 loads it.

    `src_tokens` and `tgt_tokens` name the entries of the vocabularies, by id.
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
    # Copies of all, because quantising changes them in place; fixed positions too, which no state
    # has.
    tensors = {
        **model.state_dict(),
        "src_positions.weight": model.src_positions.weight.detach(),
        "tgt_positions.weight": model.tgt_positions.weight.detach(),
    }
    weights = {name: tensor.float().cpu().numpy().copy() for name, tensor in tensors.items()}

    def fill_linear(linear: "LinearSpec", name: str) -> None:
        linear.weight, linear.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def fill_norm(norm: "LayerNormSpec", name: str) -> None:
        norm.gamma, norm.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def fill_attention(attention: "MultiHeadAttentionSpec", name: str) -> None:
        """Self-attention projects queries, keys and values in one, cross-attention the queries
        apart.
        """
        *inputs, output = attention.linear
        cuts = [config.d_model] if len(inputs) == 2 else []
        matrices = np.split(weights[f"{name}.in_proj_weight"], cuts)
        biases = np.split(weights[f"{name}.in_proj_bias"], cuts)
        for linear, matrix, bias in zip(inputs, matrices, biases, strict=True):
            linear.weight, linear.bias = matrix, bias
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
    output.bias[list(NEVER_SAID)] = NEVER_SAID_BIAS
