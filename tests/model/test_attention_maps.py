"""Attention maps of both backends: shapes, masks, PyTorch's own weights, and a model left as it
was.

Letters: B batch, S source length, T target length, L layers, H heads.
"""

from typing import get_args

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model
from torch import Tensor, nn

from mt_cli.model.attention_maps import MapKind, attention_maps
from mt_cli.model.model import TranslationModel
from mt_cli.model.transformer import causal_mask
from mt_cli.text import PAD_ID

KINDS: tuple[MapKind, ...] = get_args(MapKind)
B, S, T, H = 3, 6, 5, 2
SRC_IDS = random_ids(B, S, lengths=[6, 2, 4])
TGT_IN = random_ids(B, T, seed=1, lengths=[3, 5, 4])
PADDED = SRC_IDS == PAD_ID
FUTURE = ~causal_mask(T, device=torch.device("cpu"))

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["pre", "post"])
def norm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(backend: str, norm: str) -> TranslationModel:
    """Two encoder layers and three of the decoder, with random weights."""
    return randomised(tiny_model(backend, norm=norm, encoder_layers=2, decoder_layers=3))


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=3e-6)


def redraw(module: nn.Module) -> None:
    """Draw every parameter of `module` anew."""
    for seed, parameter in enumerate(module.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("encoder", (2, B, H, S, S)), ("decoder", (3, B, H, T, T)), ("cross", (3, B, H, T, S))],
)
def test_map_has_a_row_of_keys_for_each_layer_sentence_head_and_query(
    model: TranslationModel, kind: MapKind, shape: tuple[int, ...]
) -> None:
    assert attention_maps(model, SRC_IDS, TGT_IN)[kind].shape == shape


def test_no_token_attends_to_a_later_one_of_its_target(model: TranslationModel) -> None:
    decoder = attention_maps(model, SRC_IDS, TGT_IN)["decoder"]
    assert torch.equal(decoder == 0, FUTURE.expand_as(decoder))


@pytest.mark.parametrize("kind", ["encoder", "cross"])
def test_nothing_attends_to_padding_of_the_source_and_all_to_the_rest(
    model: TranslationModel, kind: MapKind
) -> None:
    weights = attention_maps(model, SRC_IDS, TGT_IN)[kind]
    assert torch.equal(weights == 0, PADDED[:, None, None, :].expand_as(weights))


@every_kind
def test_layers_come_in_order(model: TranslationModel, kind: MapKind) -> None:
    # No layer knows the weights of later ones, so that other weights in the last change its own map
    # only.
    before = attention_maps(model, SRC_IDS, TGT_IN)[kind]
    last = "encoder.layers.1" if kind == "encoder" else "decoder.layers.2"
    redraw(model.get_submodule(f"backend.{last}"))
    after = attention_maps(model, SRC_IDS, TGT_IN)[kind]
    assert_same(after[:-1], before[:-1])
    assert (after[-1] - before[-1]).abs().max() > 1e-2


@every_kind
def test_both_backends_give_the_same_maps(norm: str, kind: MapKind) -> None:
    reference, scratch = (
        tiny_model(backend, norm=norm, encoder_layers=2, decoder_layers=3) for backend in BACKENDS
    )
    scratch.load_state_dict(randomised(reference).state_dict())
    assert_same(
        attention_maps(scratch, SRC_IDS, TGT_IN)[kind],
        attention_maps(reference, SRC_IDS, TGT_IN)[kind],
    )


@torch.no_grad()
def test_first_map_of_the_encoder_equals_torch_attention(
    model: TranslationModel, norm: str
) -> None:
    x = model.src_embedding.weight[SRC_IDS] * 8**0.5 + model.src_positions.weight[:S]
    if norm == "pre":
        x = model.get_submodule("backend.encoder.layers.0.norm1")(x)
    attention = nn.MultiheadAttention(8, H, batch_first=True)
    ours = model.get_submodule("backend.encoder.layers.0.self_attn")
    attention.load_state_dict(ours.state_dict())
    expected = attention(x, x, x, key_padding_mask=PADDED, average_attn_weights=False)[1]
    assert_same(attention_maps(model, SRC_IDS, TGT_IN)["encoder"][0], expected)


@torch.no_grad()
def test_logits_after_observation_are_those_before_to_the_bit(model: TranslationModel) -> None:
    before = model(SRC_IDS, TGT_IN)
    attention_maps(model, SRC_IDS, TGT_IN)
    assert torch.equal(model(SRC_IDS, TGT_IN), before)
