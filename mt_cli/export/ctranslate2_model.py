"""Export for CTranslate2: a run's weights and tokenizers in that engine's format."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mt_cli.config.load import RUN_CONFIG, dump_config
from mt_cli.config.schema import ModelConfig, Quantization
from mt_cli.machine.files import MANIFEST, sha256_of_files, write_atomically, write_json
from mt_cli.model.model import TranslationModel
from mt_cli.runs.run import CheckpointReference, Run, RunManifest
from mt_cli.text import BOS_ID, EOS_ID, SPECIALS, UNK_ID
from mt_cli.text.subwords import normalizing_output
from mt_cli.text.tokenizers import TOKENIZER_FOLDER

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec


def write_export(run: Run, folder: Path, *, checkpoint: str, quantization: Quantization) -> None:
    """Write `checkpoint` of `run` into `folder` in CTranslate2's format, plus our own files."""
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
    # The engine computes in the precision of the stored weights.
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


NEVER_CHOSEN_BIAS = -1e4
"""Bias on the logits of forbidden ids: below any model's logits, and still finite in float16."""


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
    """Write `model`, built from `config`, into `folder` in CTranslate2's format.

    `src_tokens` and `tgt_tokens` are the vocabularies, in order of the ids. Target ids in
    `ruled_out` are never chosen; their probability goes to the others.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        # CTranslate2's constructor gives only pre-norm models final norms, but the engine runs
        # them with either kind, so `stack.pre_norm` below sets the real kind.
        pre_norm=True,
        no_final_norm=not config.final_norm,
        # GELU is exact, like ours; GELUTanh is an approximation.
        activation={"relu": Activation.RELU, "gelu": Activation.GELU}[config.activation],
        # Layer and heads (0: mean of all heads) of the returned attention; see
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
    # Copies, because quantizing changes them in place; with fixed positions, which are not in the
    # state_dict.
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
        """Self-attention has one projection for q, k and v; cross-attention has one for q."""
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
