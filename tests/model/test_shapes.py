"""Shapes of every module's tensors, against the sizes that the paper's letters stand for."""

import pytest
import torch
from tiny import BACKENDS, random_ids, tiny_model
from torch import Tensor

from mt_cli.model.model import TranslationModel
from mt_cli.model.shapes import ModuleShapes, trace_shapes

# No two letters stand for the same number, so that one taken for another shows.
B, S, T, D, F, V = 2, 5, 4, 18, 7, 11
SRC_IDS = random_ids(B, S, lengths=[5, 3], vocab_size=9)
TGT_IN = random_ids(B, T, seed=1, lengths=[4, 2])


def model_of(**options: object) -> TranslationModel:
    sizes = {"d_model": D, "num_heads": 3, "d_ff": F, "encoder_layers": 3, "decoder_layers": 2}
    return tiny_model(src_vocab_size=9, tgt_vocab_size=V, options={**sizes, **options})


@pytest.fixture
def traced() -> dict[str, ModuleShapes]:
    return {each.name: each for each in trace_shapes(model_of(), SRC_IDS, TGT_IN)}


@pytest.mark.parametrize(
    ("name", "inputs", "output"),
    [
        ("src_embedding", [(B, S)], (B, S, D)),
        ("tgt_positions", [(B, T, D)], (B, T, D)),
        ("backend.encoder.layers.0.self_attn", [(B, S, D), (B, 1, 1, S)], (B, S, D)),
        ("backend.encoder.layers.0.linear1", [(B, S, D)], (B, S, F)),
        ("backend.decoder.layers.0.self_attn", [(B, T, D), (T, T)], (B, T, D)),
        (
            "backend.decoder.layers.0.multihead_attn",
            [(B, T, D), (B, 1, 1, S), (B, S, D)],
            (B, T, D),
        ),
        ("backend.decoder.layers.0.linear2", [(B, T, F)], (B, T, D)),
        ("output", [(B, T, D)], (B, T, V)),
        ("logits", [], (B, T, V)),
    ],
)
def test_shapes_are_those_of_the_paper(
    traced: dict[str, ModuleShapes],
    name: str,
    inputs: list[tuple[int, ...]],
    output: tuple[int, ...],
) -> None:
    assert traced[name] == ModuleShapes(name, inputs, output)


def test_modules_stand_in_the_order_in_which_they_finish(traced: dict[str, ModuleShapes]) -> None:
    layer = "backend.encoder.layers.0"
    wanted = ["src_embedding", f"{layer}.norm1", f"{layer}.self_attn.out_proj", f"{layer}.linear1"]
    wanted += [layer, "backend.encoder", "tgt_embedding", "backend.decoder", "output", "logits"]
    assert [name for name in traced if name in wanted] == wanted


def test_only_the_first_layer_of_a_stack_is_traced(traced: dict[str, ModuleShapes]) -> None:
    assert not [name for name in traced if "layers.1" in name]


@torch.no_grad()
@pytest.mark.parametrize("backend", BACKENDS)
def test_logits_under_trace_are_those_without_to_the_bit(backend: str) -> None:
    model = model_of(backend=backend)
    expected = model(SRC_IDS, TGT_IN)
    seen: list[Tensor] = []
    model.output.register_forward_hook(lambda _module, _args, logits: seen.append(logits))
    traced = trace_shapes(model, SRC_IDS, TGT_IN)
    assert [torch.equal(logits, expected) for logits in seen] == [True]
    assert traced[-1].output == (B, T, V)
