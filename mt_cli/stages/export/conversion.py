"""A trained model in the form that CTranslate2 reads.

Knows weights by their names and CTranslate2's layout; never text, run folders or how to translate.
Letters: D d_model.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from mt_cli.config import ModelConfig, Quantization
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text.symbols import BOS_ID, EOS_ID, SPECIALS, UNK_ID
from mt_cli.translation.unknown_words import NEVER_SAID

if TYPE_CHECKING:  # an optional package, imported when something is exported
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec
    from ctranslate2.specs.transformer_spec import (
        TransformerDecoderLayerSpec,
        TransformerDecoderSpec,
        TransformerEncoderLayerSpec,
        TransformerEncoderSpec,
    )

Weights: TypeAlias = Mapping[str, npt.NDArray[np.float32]]

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
    spec = _build_spec(model, config)
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


def _build_spec(model: TranslationModel, config: ModelConfig) -> "TransformerSpec":
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        # Only a pre-norm model is given final norms here. CTranslate2 runs them with either kind, so
        # `_fill_stack` says which it is.
        pre_norm=True,
        no_final_norm=not config.final_norm,
        # Its GELU is the exact one, as ours is; GELUTanh approximates it.
        activation={"relu": Activation.RELU, "gelu": Activation.GELU}[config.activation],
        # The layer and the heads (0 is the mean of all) whose attention it returns: see `Engine.align`.
        alignment_layer=max(0, config.decoder_layers - 2),
        alignment_heads=0,
    )
    weights = _weights_of(model)
    spec.encoder.embeddings[0].weight = weights["src_embedding.weight"]
    spec.encoder.position_encodings.encodings = weights["src_positions.weight"]
    _fill_stack(spec.encoder, config, _below("backend.encoder.", weights))
    spec.decoder.embeddings.weight = weights["tgt_embedding.weight"]
    spec.decoder.position_encodings.encodings = weights["tgt_positions.weight"]
    _fill_stack(spec.decoder, config, _below("backend.decoder.", weights))
    output = spec.decoder.projection
    output.weight = weights["output.weight"]
    output.bias = weights.get("output.bias", np.zeros(len(output.weight), np.float32))
    output.bias[list(NEVER_SAID)] = NEVER_SAID_BIAS
    return spec


def _weights_of(model: TranslationModel) -> Weights:
    """Copies of all, because quantising changes them in place; fixed positions too, which no state has."""
    tensors = {
        **model.state_dict(),
        "src_positions.weight": model.src_positions.weight.detach(),
        "tgt_positions.weight": model.tgt_positions.weight.detach(),
    }
    return {name: tensor.float().cpu().numpy().copy() for name, tensor in tensors.items()}


def _fill_stack(
    stack: "TransformerEncoderSpec | TransformerDecoderSpec", config: ModelConfig, weights: Weights
) -> None:
    stack.pre_norm = config.norm == "pre"
    stack.scale_embeddings = config.scale_embeddings
    if config.final_norm:
        _fill_norm(stack.layer_norm, _below("norm.", weights))
    for number, layer in enumerate(stack.layer):
        _fill_layer(layer, _below(f"layers.{number}.", weights))


def _fill_layer(layer: "TransformerEncoderLayerSpec | TransformerDecoderLayerSpec", weights: Weights) -> None:
    sublayers = [layer.self_attention]
    _fill_attention(layer.self_attention, _below("self_attn.", weights))
    if cross := _below("multihead_attn.", weights):
        sublayers.append(layer.attention)
        _fill_attention(layer.attention, cross)
    sublayers.append(layer.ffn)
    _fill_linear(layer.ffn.linear_0, _below("linear1.", weights))
    _fill_linear(layer.ffn.linear_1, _below("linear2.", weights))
    for number, sublayer in enumerate(sublayers, start=1):
        _fill_norm(sublayer.layer_norm, _below(f"norm{number}.", weights))


def _fill_attention(spec: "MultiHeadAttentionSpec", weights: Weights) -> None:
    """Self-attention projects queries, keys and values in one, cross-attention the queries apart."""
    *inputs, output = spec.linear
    D = weights["in_proj_weight"].shape[1]
    cuts = [D] if len(inputs) == 2 else []
    matrices = np.split(weights["in_proj_weight"], cuts)
    biases = np.split(weights["in_proj_bias"], cuts)
    for linear, matrix, bias in zip(inputs, matrices, biases, strict=True):
        linear.weight, linear.bias = matrix, bias
    _fill_linear(output, _below("out_proj.", weights))


def _fill_linear(spec: "LinearSpec", weights: Weights) -> None:
    spec.weight, spec.bias = weights["weight"], weights["bias"]


def _fill_norm(spec: "LayerNormSpec", weights: Weights) -> None:
    spec.gamma, spec.beta = weights["weight"], weights["bias"]


def _below(prefix: str, weights: Weights) -> Weights:
    """Those whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)}
