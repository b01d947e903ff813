"""Attention maps of both backends: shapes, masks, PyTorch's own weights, and a model left as it
was.

Letters: B batch, S source length, T target length, L layers, H heads.
"""

from typing import get_args

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model
from torch import Tensor, nn

from mt_cli.model.inside import MapKind, attention_maps
from mt_cli.model.transformer import causal_mask
from mt_cli.model.translation_model import TranslationModel
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


@pytest.mark.parametrize("final_norm", [True, False])
@every_kind
def test_both_backends_give_the_same_maps(norm: str, kind: MapKind, final_norm: bool) -> None:
    reference, scratch = (
        tiny_model(backend, norm=norm, final_norm=final_norm, encoder_layers=2, decoder_layers=3)
        for backend in ("torch", "scratch")
    )
    scratch.load_state_dict(randomised(reference).state_dict())
    assert_same(
        attention_maps(scratch, SRC_IDS, TGT_IN)[kind],
        attention_maps(reference, SRC_IDS, TGT_IN)[kind],
    )


class ByHand:
    """The maps of first layers, by nn.MultiheadAttention around the model's own norms and
    embeddings.
    """

    def __init__(self, model: TranslationModel, *, is_pre_norm: bool) -> None:
        self.model, self.is_pre_norm = model, is_pre_norm
        self.src = self._embedded(model.src_embedding, model.src_positions.weight, SRC_IDS)
        self.tgt = self._embedded(model.tgt_embedding, model.tgt_positions.weight, TGT_IN)

    @torch.no_grad()
    def map(self, kind: MapKind) -> Tensor:
        """(B, H, queries, keys) of the first layer."""
        if kind == "encoder":
            return self._attend("encoder.layers.0.self_attn", self._normed("encoder", 1, self.src))[
                1
            ]
        x = self._normed("decoder", 1, self.tgt)
        attended, weights = self._attend("decoder.layers.0.self_attn", x)
        if kind == "decoder":
            return weights
        memory, _ = self.model.encode(SRC_IDS)
        norm1 = self.model.get_submodule("backend.decoder.layers.0.norm1")
        after = self.tgt + attended if self.is_pre_norm else norm1(self.tgt + attended)
        return self._attend(
            "decoder.layers.0.multihead_attn", self._normed("decoder", 2, after), memory
        )[1]

    def _embedded(self, embedding: nn.Embedding, positions: Tensor, ids: Tensor) -> Tensor:
        embedded: Tensor = embedding.weight[ids] * 8**0.5 + positions[: ids.shape[1]]
        return embedded

    def _normed(self, stack: str, number: int, x: Tensor) -> Tensor:
        """What the attention after that norm is given, where norms come first."""
        norm = self.model.get_submodule(f"backend.{stack}.layers.0.norm{number}")
        return norm(x) if self.is_pre_norm else x

    def _attend(self, name: str, x: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Output and weights; the future is hidden in a target, padding in a source."""
        attention = nn.MultiheadAttention(8, H, batch_first=True)
        attention.load_state_dict(self.model.get_submodule(f"backend.{name}").state_dict())
        keys = x if memory is None else memory
        hidden = {"attn_mask": FUTURE} if keys.shape[1] == T else {"key_padding_mask": PADDED}
        output, weights = attention(
            x, keys, keys, need_weights=True, average_attn_weights=False, **hidden
        )
        return output, weights


@every_kind
def test_first_layer_equals_torch_attention_worked_by_hand(
    model: TranslationModel, norm: str, kind: MapKind
) -> None:
    expected = ByHand(model, is_pre_norm=norm == "pre").map(kind)
    assert_same(attention_maps(model, SRC_IDS, TGT_IN)[kind][0], expected)


@torch.no_grad()
def test_logits_after_observation_are_those_before_to_the_bit(model: TranslationModel) -> None:
    before = model(SRC_IDS, TGT_IN)
    attention_maps(model, SRC_IDS, TGT_IN)
    assert torch.equal(model(SRC_IDS, TGT_IN), before)
