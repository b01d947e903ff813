"""Looking inside: attention maps against PyTorch's own weights, and a model left as it was.

Letters: B batch, S source length, T target length, L layers, H heads, D, F and V sizes.
"""

from typing import get_args

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model
from torch import Tensor, nn

from mt_cli.model.inside import MapKind, attention_maps, trace_shapes
from mt_cli.model.model import TranslationModel
from mt_cli.model.transformer import causal_mask
from mt_cli.text import PAD_ID

KINDS: tuple[MapKind, ...] = get_args(MapKind)
# No two letters stand for the same number, so that one taken for another shows.
B, S, T, H, D, F, V = 2, 6, 5, 3, 18, 7, 11
SRC_IDS = random_ids(B, S, lengths=[6, 2], vocab_size=9)
TGT_IN = random_ids(B, T, seed=1, lengths=[3, 5])
PADDED = SRC_IDS == PAD_ID
FUTURE = ~causal_mask(T, device=torch.device("cpu"))
SHAPES: dict[MapKind, tuple[int, ...]] = {
    "encoder": (2, B, H, S, S),
    "decoder": (3, B, H, T, T),
    "cross": (3, B, H, T, S),
}


def model_of(backend: str, norm: str = "pre") -> TranslationModel:
    """Two encoder layers and three of the decoder, with random weights."""
    sizes = {"d_model": D, "num_heads": H, "d_ff": F, "encoder_layers": 2, "decoder_layers": 3}
    model = tiny_model(backend, src_vocab_size=9, tgt_vocab_size=V, options=sizes, norm=norm)
    return randomised(model, std=0.3)


@pytest.fixture(params=["pre", "post"])
def norm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=BACKENDS)
def model(request: pytest.FixtureRequest, norm: str) -> TranslationModel:
    return model_of(request.param, norm)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=3e-6)


def test_maps_have_a_row_of_keys_for_each_query_and_hide_what_is_hidden(
    model: TranslationModel,
) -> None:
    maps = attention_maps(model, SRC_IDS, TGT_IN)
    assert {kind: weights.shape for kind, weights in maps.items()} == SHAPES
    source = PADDED[:, None, None, :]
    hidden: dict[MapKind, Tensor] = {"encoder": source, "decoder": FUTURE, "cross": source}
    found = {
        kind: torch.equal(maps[kind] == 0, hidden[kind].expand(SHAPES[kind])) for kind in KINDS
    }
    assert found == dict.fromkeys(KINDS, True)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_layers_come_in_order(model: TranslationModel, kind: MapKind) -> None:
    # No layer knows the weights of later ones, so that other weights in the last change its own map
    # only.
    before = attention_maps(model, SRC_IDS, TGT_IN)[kind]
    last = "encoder.layers.1" if kind == "encoder" else "decoder.layers.2"
    for seed, parameter in enumerate(model.get_submodule(f"backend.{last}").parameters()):
        parameter.normal_(generator=torch.Generator().manual_seed(seed))
    after = attention_maps(model, SRC_IDS, TGT_IN)[kind]
    assert_same(after[:-1], before[:-1])
    assert (after[-1] - before[-1]).abs().max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_both_backends_give_the_same_maps(norm: str, kind: MapKind) -> None:
    reference, scratch = model_of("torch", norm), model_of("scratch", norm)
    scratch.load_state_dict(reference.state_dict())
    found, expected = (attention_maps(each, SRC_IDS, TGT_IN)[kind] for each in (scratch, reference))
    assert_same(found, expected)


@torch.no_grad()
def test_first_map_of_the_encoder_equals_torch_attention(
    model: TranslationModel, norm: str
) -> None:
    x = model.src_embedding.weight[SRC_IDS] * D**0.5 + model.src_positions.weight[:S]
    if norm == "pre":
        x = model.get_submodule("backend.encoder.layers.0.norm1")(x)
    attention = nn.MultiheadAttention(D, H, batch_first=True)
    ours = model.get_submodule("backend.encoder.layers.0.self_attn")
    attention.load_state_dict(ours.state_dict())
    expected = attention(x, x, x, key_padding_mask=PADDED, average_attn_weights=False)[1]
    assert_same(attention_maps(model, SRC_IDS, TGT_IN)["encoder"][0], expected)


@torch.no_grad()
def test_logits_under_and_after_observation_are_those_before_to_the_bit(
    model: TranslationModel,
) -> None:
    seen: list[Tensor] = []
    model.output.register_forward_hook(lambda _module, _args, logits: seen.append(logits))
    before = model(SRC_IDS, TGT_IN)
    trace_shapes(model, SRC_IDS, TGT_IN)
    attention_maps(model, SRC_IDS, TGT_IN)
    model(SRC_IDS, TGT_IN)
    assert [torch.equal(logits, before) for logits in seen] == [True] * 3
