"""Shape tracing: the letters tell the truth, and every name stands where the paper has it.

Letters: B batch, S source length, T target length, D d_model, H heads, K head size, F d_ff, V vocabulary.
"""

import pytest
import torch
from tiny import random_ids, tiny_model
from torch import Tensor, nn

from mt_cli.model.shape_trace import LEVELS, Level, TracedTensor, trace_shapes
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


def names(trace: list[TracedTensor], *, level: Level, place: str = "") -> list[str]:
    return [tensor.name for tensor in trace if (tensor.level, tensor.place) == (level, place)]


def letters(trace: list[TracedTensor], *, level: Level, place: str = "") -> dict[str, str]:
    return {tensor.name: tensor.letters for tensor in trace if (tensor.level, tensor.place) == (level, place)}


# Letters


def test_no_two_letters_of_these_tests_are_the_same_number() -> None:
    assert len(set(SIZES.values())) == len(SIZES)


def test_legend_says_what_each_letter_is() -> None:
    assert trace_shapes(model_of(), SRC_IDS, TGT_IN).legend == SIZES


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


def test_legend_holds_every_letter_that_a_trace_uses() -> None:
    used = {letter for tensor in traced() for letter in tensor.letters.split()}
    assert used == {*trace_shapes(model_of(), SRC_IDS, TGT_IN).legend, "1"}


@pytest.mark.parametrize(("src", "tgt"), [((1, 1), (1, 1)), ((1, 16), (1, 1)), ((3, 1), (3, 16))])
def test_shapes_are_those_of_the_ids_given(src: tuple[int, int], tgt: tuple[int, int]) -> None:
    trace = trace_shapes(model_of(), random_ids(*src, vocab_size=9), random_ids(*tgt))
    shapes = {tensor.name: tensor.shape for tensor in trace.tensors}
    assert shapes["memory"] == (*src, 18)
    assert shapes["logits"] == (*tgt, 11)


# Order


def test_model_is_told_from_ids_to_logits() -> None:
    assert names(traced(), level="model") == [
        "source ids",
        "target ids, shifted right",
        "source, embedded: √d_model · E[ids]",
        "source, plus positions: + PE",
        "memory",
        "target, embedded: √d_model · E[ids]",
        "target, plus positions: + PE",
        "decoder output",
        "logits",
    ]


@either_norm
@pytest.mark.parametrize(
    ("place", "length"), [("encoder layer 1", "S"), ("decoder layer 1", "T")], ids=["encoder", "decoder"]
)
def test_every_tensor_of_a_layer_is_as_long_as_its_side(place: str, length: str, norm: str) -> None:
    assert set(letters(traced(norm=norm), level="layer", place=place).values()) == {f"B {length} D"}


@pytest.mark.parametrize(
    ("norm", "side", "sublayers"),
    [
        ("post", "encoder", "self-attention(x); FFN(x)"),
        ("post", "decoder", "self-attention(x); cross-attention(x, memory); FFN(x)"),
        ("pre", "decoder", "self-attention({0}); cross-attention({0}, memory); FFN({0})"),
    ],
)
def test_layer_is_told_sublayer_by_sublayer(norm: str, side: str, sublayers: str) -> None:
    told = names(traced(norm=norm), level="layer", place=f"{side} layer 1")
    assert told == ["x", *sublayers.format("LayerNorm(x)").split("; "), "output"]


@every_attention
def test_attention_is_told_from_scores_to_values(place: str, lengths: str) -> None:
    del lengths
    told = names(traced(), level="attention", place=place)
    assert told == ["QKᵀ/√d_k", "mask", "softmax(QKᵀ/√d_k)", "softmax(QKᵀ/√d_k)V"]


@every_attention
def test_head_is_told_from_projections_to_its_result(place: str, lengths: str) -> None:
    queries, keys = lengths.split()
    assert list(letters(traced(), level="head", place=place).items()) == [
        ("QW₁^Q", f"B {queries} K"),
        ("KW₁^K", f"B {keys} K"),
        ("VW₁^V", f"B {keys} K"),
        ("head₁", f"B {queries} K"),
    ]


@every_attention
def test_block_is_told_from_inputs_to_its_result(place: str, lengths: str) -> None:
    queries, keys = lengths.split()
    assert list(letters(traced(), level="block", place=place).items()) == [
        ("Q", f"B {queries} D"),
        ("K, V", f"B {keys} D"),
        ("Concat(head₁, …, head_h)", f"B {queries} D"),
        ("Concat(head₁, …, head_h)W^O", f"B {queries} D"),
    ]


def test_layers_are_told_one_after_the_other() -> None:
    places = list(dict.fromkeys(tensor.place for tensor in traced() if tensor.place))
    assert places == [
        "encoder layer 1",
        "encoder layer 1, self-attention",
        "encoder layer 1, feed-forward",
        "decoder layer 1",
        "decoder layer 1, self-attention",
        "decoder layer 1, cross-attention",
        "decoder layer 1, feed-forward",
    ]


def test_layer_begins_before_its_parts_and_ends_after_them() -> None:
    told = [(t.place, t.name) for t in traced() if t.place.startswith("encoder layer 1")]
    assert (told[0], told[-1]) == (("encoder layer 1", "x"), ("encoder layer 1", "output"))


def test_memory_is_told_between_the_encoder_and_the_target() -> None:
    told = [(t.place, t.name) for t in traced()]
    memory = told.index(("", "memory"))
    assert told[memory - 1] == ("encoder layer 1", "output")
    assert told[memory + 1] == ("", "target, embedded: √d_model · E[ids]")


@either_norm
def test_nothing_is_told_twice(norm: str) -> None:
    told = [(t.level, t.place, t.name) for t in traced(norm=norm)]
    assert len(set(told)) == len(told)


# Levels and names


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_occurs(level: Level) -> None:
    assert level in {tensor.level for tensor in traced()}


def test_levels_go_from_afar_to_near() -> None:
    assert LEVELS == ("model", "layer", "block", "head", "attention")


def test_only_the_model_has_no_place() -> None:
    trace = traced()
    assert {t.level for t in trace if not t.place} == {"model"}
    assert {t.level for t in trace if t.place} == {"layer", "block", "head", "attention"}


@every_attention
def test_scores_have_a_key_for_each_token_looked_at(place: str, lengths: str) -> None:
    told = letters(traced(), level="attention", place=place)
    queries, _ = lengths.split()
    assert (told["QKᵀ/√d_k"], told["softmax(QKᵀ/√d_k)"]) == (f"B H {lengths}", f"B H {lengths}")
    assert told["softmax(QKᵀ/√d_k)V"] == f"B H {queries} K"


@pytest.mark.parametrize(
    ("place", "mask"), list(zip(ATTENTIONS, ["B 1 1 S", "T T", "B 1 1 S"], strict=True)), ids=ATTENTIONS
)
def test_masks_are_of_padding_in_a_source_and_of_the_future_in_a_target(place: str, mask: str) -> None:
    assert letters(traced(), level="attention", place=place)["mask"] == mask


@pytest.mark.parametrize(("norm", "is_named"), [("pre", True), ("post", False)])
def test_layer_norm_is_named_where_it_comes_first(norm: str, is_named: bool) -> None:
    assert any("LayerNorm" in tensor.name for tensor in traced(norm=norm)) is is_named


@pytest.mark.parametrize(
    ("activation", "name"), [("relu", "max(0, xW₁ + b₁)W₂ + b₂"), ("gelu", "GELU(xW₁ + b₁)W₂ + b₂")]
)
@pytest.mark.parametrize(("side", "length"), [("encoder", "S"), ("decoder", "T")])
def test_feed_forward_names_its_activation(activation: str, name: str, side: str, length: str) -> None:
    told = letters(traced(activation=activation), level="block", place=f"{side} layer 1, feed-forward")
    assert told == {"xW₁ + b₁": f"B {length} F", name: f"B {length} D"}


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(("is_scaled", "factor"), [(True, "√d_model · "), (False, "")])
def test_embeddings_are_named_with_their_factor(is_scaled: bool, factor: str, side: str) -> None:
    assert f"{side}, embedded: {factor}E[ids]" in names(traced(scale_embeddings=is_scaled), level="model")


# The model is left as it was


def hooks_of(model: nn.Module) -> list[object]:
    """Every hook on every module."""
    return [
        hook
        for module in model.modules()
        for hooks in (module._forward_hooks, module._forward_pre_hooks)
        for hook in hooks.values()
    ]


def test_no_hook_stays() -> None:
    model = model_of()
    trace_shapes(model, SRC_IDS, TGT_IN)
    assert hooks_of(model) == []


def test_no_hook_stays_when_the_target_is_refused() -> None:
    model = model_of()
    with pytest.raises(ValueError, match="17 tokens, but the model takes 16"):
        trace_shapes(model, SRC_IDS, random_ids(2, 17))
    assert hooks_of(model) == []


@torch.no_grad()
@either_norm
def test_logits_under_trace_are_those_without_to_the_bit(norm: str) -> None:
    model = model_of(norm=norm)
    expected = model(SRC_IDS, TGT_IN)
    seen: list[Tensor] = []
    model.output.register_forward_hook(lambda _module, _args, logits: seen.append(logits))
    trace_shapes(model, SRC_IDS, TGT_IN)
    assert [torch.equal(logits, expected) for logits in seen] == [True]


def test_a_second_trace_tells_the_same() -> None:
    model = model_of()
    assert trace_shapes(model, SRC_IDS, TGT_IN) == trace_shapes(model, SRC_IDS, TGT_IN)


def test_torch_backend_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^only the scratch backend can be traced; load the checkpoint with it$"
    ):
        trace_shapes(model_of(backend="torch"), SRC_IDS, TGT_IN)
