"""Shape tracing: the letters tell the truth, and every name stands where the paper has it.

Letters: B batch, S source length, T target length, D d_model, H heads, K head size, F d_ff, V
vocabulary.
"""

import pytest
import torch
from tiny import random_ids, tiny_model
from torch import Tensor

from mt_cli.model.inside import Level, TracedTensor, trace_shapes
from mt_cli.model.translation_model import TranslationModel

# No two letters stand for the same number, so that one taken for another shows.
SIZES = {"B": 2, "S": 5, "T": 4, "D": 18, "H": 3, "K": 6, "F": 7, "V": 11}
SRC_IDS = random_ids(2, 5, lengths=[5, 3], vocab_size=9)
TGT_IN = random_ids(2, 4, seed=1, lengths=[4, 2])
ATTENTIONS = {
    "encoder layer 1, self-attention": "S S",
    "decoder layer 1, self-attention": "T T",
    "decoder layer 1, cross-attention": "T S",
}

either_norm = pytest.mark.parametrize("norm", ["pre", "post"])
every_attention = pytest.mark.parametrize(("place", "lengths"), ATTENTIONS.items(), ids=ATTENTIONS)


def model_of(**options: object) -> TranslationModel:
    sizes = {"d_model": 18, "num_heads": 3, "d_ff": 7, "encoder_layers": 3, "decoder_layers": 2}
    return tiny_model(src_vocab_size=9, tgt_vocab_size=11, options={**sizes, **options})


def traced(**options: object) -> list[TracedTensor]:
    return trace_shapes(model_of(**options), SRC_IDS, TGT_IN).tensors


def letters(trace: list[TracedTensor], *, level: Level, place: str = "") -> dict[str, str]:
    return {
        tensor.name: tensor.letters
        for tensor in trace
        if (tensor.level, tensor.place) == (level, place)
    }


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@either_norm
@pytest.mark.parametrize("final_norm", [True, False])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_letters_of_every_tensor_are_its_shape(
    norm: str, activation: str, final_norm: bool, positions: str
) -> None:
    trace = traced(norm=norm, activation=activation, final_norm=final_norm, positions=positions)
    meaning = {**SIZES, "1": 1}
    told = {t: tuple(meaning[letter] for letter in t.letters.split()) for t in trace}
    assert told == {t: t.shape for t in trace}


@torch.no_grad()
@either_norm
def test_logits_under_trace_are_those_without_to_the_bit(norm: str) -> None:
    model = model_of(norm=norm)
    expected = model(SRC_IDS, TGT_IN)
    seen: list[Tensor] = []
    model.output.register_forward_hook(lambda _module, _args, logits: seen.append(logits))
    trace_shapes(model, SRC_IDS, TGT_IN)
    assert [torch.equal(logits, expected) for logits in seen] == [True]


def test_torch_backend_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^only the scratch backend can be traced; load the checkpoint with it$"
    ):
        trace_shapes(model_of(backend="torch"), SRC_IDS, TGT_IN)


@every_attention
def test_attention_is_told_from_projections_to_its_result(place: str, lengths: str) -> None:
    queries, keys = lengths.split()
    trace = traced()
    assert list(letters(trace, level="head", place=place).items()) == [
        ("QW₁^Q", f"B {queries} K"),
        ("KW₁^K", f"B {keys} K"),
        ("VW₁^V", f"B {keys} K"),
        ("head₁", f"B {queries} K"),
    ]
    assert list(letters(trace, level="attention", place=place).items()) == [
        ("QKᵀ/√d_k", f"B H {lengths}"),
        ("mask", "T T" if lengths == "T T" else "B 1 1 S"),
        ("softmax(QKᵀ/√d_k)", f"B H {lengths}"),
        ("softmax(QKᵀ/√d_k)V", f"B H {queries} K"),
    ]
