"""The published designs of configs/classic, rebuilt from plain parts with their errors mended.

What a design is stands in `DESIGNS` and `PUBLISHED`, as its author wrote it; the model comes from
the TOML file. Both get the same weights. Letters: B batch, S source length, T target length, D
d_model, H heads, K head size, V vocabulary.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model
from torch import Tensor, nn

from mt_cli.config.load import load_config
from mt_cli.config.schema import ModelConfig
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text import PAD_ID

CLASSIC = Path(__file__).resolve().parents[2] / "configs" / "classic"
SRC_VOCAB, TGT_VOCAB = 9, 11
SRC_IDS = random_ids(3, 6, lengths=[6, 2, 4], vocab_size=SRC_VOCAB)
TGT_IN = random_ids(3, 5, seed=1, lengths=[3, 5, 4], vocab_size=TGT_VOCAB)
SRC_REAL, TGT_REAL = SRC_IDS != PAD_ID, TGT_IN != PAD_ID


@dataclass(frozen=True)
class Sizes:
    """The numbers of a model that its weights depend on."""

    d_model: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    d_ff: int
    max_len: int


@dataclass(frozen=True)
class Design:
    """What a design computes."""

    middle: Literal["nn.Transformer", "a projection a role", "a projection a head"]
    norm: Literal["before", "after"] = "after"
    last_norm: bool = False
    places: Literal["waves", "table", "table, padding last"] = "table"
    embeddings: Literal["as they are", "times √D", "drawn √D larger"] = "times √D"


DESIGNS = {
    "slides-torch": Design("nn.Transformer", last_norm=True, places="table, padding last"),
    "slides-scratch": Design("a projection a role", places="table, padding last"),
    "notebook": Design("a projection a head", places="waves"),
    "page": Design("a projection a role", places="waves", embeddings="drawn √D larger"),
    "note": Design("a projection a role", norm="before", last_norm=True, embeddings="as they are"),
    "thread": Design("a projection a head"),
}
# The notebook says only that 8 heads of 20 make 160; the page and the thread name no longest
# sentence.
PUBLISHED = {
    "slides-torch": Sizes(256, 8, 3, 3, 512, 100),
    "slides-scratch": Sizes(256, 8, 3, 3, 512, 100),
    "notebook": Sizes(160, 8, 3, 3, 640, 256),
    "page": Sizes(512, 8, 6, 6, 2048, 256),
    "note": Sizes(512, 8, 3, 3, 512, 50),
    "thread": Sizes(512, 8, 6, 6, 2048, 256),
}
# Longer stacks of different lengths than tiny_model's, and nothing that could be mistaken for
# another size.
SMALL = Sizes(d_model=8, num_heads=4, encoder_layers=2, decoder_layers=3, d_ff=12, max_len=7)

every_design = pytest.mark.parametrize("name", DESIGNS)
either_backend = pytest.mark.parametrize("backend", BACKENDS)


# The plain parts

Weights = Mapping[str, Tensor]


def part(weights: Weights, prefix: str) -> dict[str, Tensor]:
    """The weights whose names begin with `prefix` and a dot, named without."""
    return {
        key.removeprefix(f"{prefix}."): w
        for key, w in weights.items()
        if key.startswith(f"{prefix}.")
    }


class Attention(nn.Module):
    """Attention with a linear map for each role, or for each head of each role."""

    def __init__(self, sizes: Sizes, *, maps_per_role: int) -> None:
        super().__init__()
        D, self.num_heads = sizes.d_model, sizes.num_heads
        self.maps = nn.ModuleList(
            nn.Linear(D, D // maps_per_role) for _ in range(3 * maps_per_role)
        )
        self.last = nn.Linear(D, D)

    def load(self, weights: Weights) -> None:
        """Cut the packed matrix to pieces: queries come first, then keys, then values, each head by
        head.
        """
        pieces = (weights[f"in_proj_{kind}"].chunk(len(self.maps)) for kind in ("weight", "bias"))
        for linear, weight, bias in zip(self.maps, *pieces, strict=True):
            linear.load_state_dict({"weight": weight, "bias": bias})
        self.last.load_state_dict(part(weights, "out_proj"))


class RoleAttention(Attention):
    """One map for all queries, one for all keys, one for all values; heads are slices of their
    results.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes, maps_per_role=1)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """`x` (B, T, D) looks at `memory` (B, S, D) where `mask` (B or 1, T or 1, S) is true."""
        q, k, v = (
            linear(source).unflatten(-1, (self.num_heads, -1))  # (B, T or S, H, K)
            for linear, source in zip(self.maps, (x, memory, memory), strict=True)
        )
        scores = torch.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5
        weights = torch.where(mask.unsqueeze(1), scores, -torch.inf).softmax(-1)
        out: Tensor = self.last(torch.einsum("bhts,bshk->bthk", weights, v).flatten(2))
        return out


class HeadAttention(Attention):
    """Every head has three maps of its own and attends alone; then their results are joined."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes, maps_per_role=sizes.num_heads)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """`x` (B, T, D) looks at `memory` (B, S, D) where `mask` (B or 1, T or 1, S) is true."""
        H = self.num_heads
        heads = zip(self.maps[:H], self.maps[H : 2 * H], self.maps[2 * H :], strict=True)
        results = [
            self._attend(q(x), k(memory), v(memory), mask) for q, k, v in heads
        ]  # each (B, T, K)
        out: Tensor = self.last(torch.cat(results, dim=-1))
        return out

    @staticmethod
    def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        # Softmax spelt out: whatever is subtracted cancels, and the largest score keeps exp from
        # overflowing.
        scores = torch.bmm(q, k.mT) / q.shape[-1] ** 0.5
        parts = (scores - scores.amax(-1, keepdim=True)).exp() * mask
        return torch.bmm(parts / parts.sum(-1, keepdim=True), v)


class Layer(nn.Module):
    """Attention to itself, then in a decoder to the memory, then two linear maps; each has a norm."""

    def __init__(self, design: Design, sizes: Sizes, *, reads_memory: bool) -> None:
        super().__init__()
        attention = HeadAttention if design.middle == "a projection a head" else RoleAttention
        self.is_norm_before = design.norm == "before"
        self.names = ("self_attn", "multihead_attn")[: 1 + reads_memory]
        self.attentions = nn.ModuleList(attention(sizes) for _ in self.names)
        self.wide, self.narrow = (
            nn.Linear(sizes.d_model, sizes.d_ff),
            nn.Linear(sizes.d_ff, sizes.d_model),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.d_model) for _ in range(2 + reads_memory))

    def load(self, weights: Weights) -> None:
        for name, attention in zip(self.names, self.attentions, strict=True):
            assert isinstance(attention, Attention)
            attention.load(part(weights, name))
        self.wide.load_state_dict(part(weights, "linear1"))
        self.narrow.load_state_dict(part(weights, "linear2"))
        for number, norm in enumerate(self.norms, 1):
            norm.load_state_dict(part(weights, f"norm{number}"))

    def forward(self, x: Tensor, mask: Tensor, *read: Tensor) -> Tensor:
        """`x` (B, T, D) under `mask`; what is `read`, in a decoder, are the memory and its mask."""
        sublayers: list[Callable[[Tensor], Tensor]] = [lambda y: self.attentions[0](y, y, mask)]
        if read:
            sublayers.append(lambda y: self.attentions[1](y, *read))
        sublayers.append(lambda y: self.narrow(self.wide(y).clamp(min=0)))
        for sublayer, norm in zip(sublayers, self.norms, strict=True):
            x = x + sublayer(norm(x)) if self.is_norm_before else norm(x + sublayer(x))
        return x


class Stacks(nn.Module):
    """An encoder and a decoder of plain layers."""

    def __init__(self, design: Design, sizes: Sizes) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(
            Layer(design, sizes, reads_memory=False) for _ in range(sizes.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Layer(design, sizes, reads_memory=True) for _ in range(sizes.decoder_layers)
        )
        self.last_norms = nn.ModuleList(
            nn.LayerNorm(sizes.d_model) for _ in range(2 * design.last_norm)
        )

    def load(self, weights: Weights) -> None:
        for stack in ("encoder", "decoder"):
            for number, layer in enumerate(self.get_submodule(stack).children()):
                assert isinstance(layer, Layer)
                layer.load(part(weights, f"{stack}.layers.{number}"))
        for stack, norm in zip(("encoder", "decoder"), self.last_norms, strict=False):
            norm.load_state_dict(part(weights, f"{stack}.norm"))

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        for layer in self.encoder:
            src = layer(src, src_mask.unsqueeze(1))
        return self.last_norms[0](src) if len(self.last_norms) else src

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        T = tgt.shape[1]
        past = torch.arange(T)[:, None] >= torch.arange(T)  # (T, T)
        for layer in self.decoder:
            tgt = layer(tgt, past & tgt_mask.unsqueeze(1), memory, src_mask.unsqueeze(1))
        return self.last_norms[1](tgt) if len(self.last_norms) else tgt


class TorchStacks(nn.Module):
    """nn.Transformer, asked to hide padding from all attentions; to it, true means hidden."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.transformer = nn.Transformer(
            sizes.d_model,
            sizes.num_heads,
            sizes.encoder_layers,
            sizes.decoder_layers,
            sizes.d_ff,
            batch_first=True,
        )

    def load(self, weights: Weights) -> None:
        self.transformer.load_state_dict(weights)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        memory: Tensor = self.transformer.encoder(src, src_key_padding_mask=~src_mask)
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        future = torch.full((tgt.shape[1], tgt.shape[1]), fill_value=True).triu(1)
        out: Tensor = self.transformer.decoder(
            tgt,
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=~tgt_mask,
            memory_key_padding_mask=~src_mask,
        )
        return out


def waves(max_len: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same (Vaswani et al. 2017,
    3.5).
    """
    of_column = (math.sin, math.cos)
    return torch.tensor(
        [
            [
                of_column[column % 2](pos / 10000 ** (column // 2 * 2 / d_model))
                for column in range(d_model)
            ]
            for pos in range(max_len)
        ]
    )


class Input(nn.Module):
    """Embeddings of tokens plus those of places."""

    def __init__(self, design: Design, sizes: Sizes, vocab_size: int) -> None:
        super().__init__()
        self.design = design
        self.tokens = nn.Embedding(vocab_size, sizes.d_model)
        self.waves: Tensor
        if design.places == "waves":
            self.register_buffer("waves", waves(sizes.max_len, sizes.d_model))
        else:
            self.table = nn.Embedding(sizes.max_len, sizes.d_model)

    def load(self, embedding: Weights, places: Weights) -> None:
        D = self.tokens.embedding_dim
        stretch = D**0.5 if self.design.embeddings == "drawn √D larger" else 1.0
        self.tokens.load_state_dict({"weight": embedding["weight"] * stretch})
        if self.design.places != "waves":
            self.table.load_state_dict(places)

    def forward(self, ids: Tensor) -> Tensor:
        """`ids` (B, T), embedded: (B, T, D)."""
        x: Tensor = self.tokens(ids)
        if self.design.embeddings == "times √D":
            x = x * x.shape[-1] ** 0.5
        place = torch.arange(ids.shape[1]).expand_as(ids)
        if self.design.places == "waves":
            return x + self.waves[place]
        if self.design.places == "table, padding last":
            place = torch.where(ids == PAD_ID, self.table.num_embeddings - 1, place)
        embedded: Tensor = x + self.table(place)
        return embedded


class Rebuilt(nn.Module):
    """A whole design."""

    def __init__(self, design: Design, sizes: Sizes, *, src_vocab: int, tgt_vocab: int) -> None:
        super().__init__()
        self.src_input = Input(design, sizes, src_vocab)
        self.tgt_input = Input(design, sizes, tgt_vocab)
        self.middle: TorchStacks | Stacks = (
            TorchStacks(sizes) if design.middle == "nn.Transformer" else Stacks(design, sizes)
        )
        self.output = nn.Linear(sizes.d_model, tgt_vocab)

    def load(self, weights: Weights) -> None:
        """Take the weights of a `TranslationModel`."""
        self.src_input.load(part(weights, "src_embedding"), part(weights, "src_positions"))
        self.tgt_input.load(part(weights, "tgt_embedding"), part(weights, "tgt_positions"))
        self.middle.load(part(weights, "backend"))
        self.output.load_state_dict(part(weights, "output"))

    def encode(self, src_ids: Tensor) -> Tensor:
        return self.middle.encode(self.src_input(src_ids), src_ids != PAD_ID)

    def forward(
        self, src_ids: Tensor, tgt_in: Tensor, *, cross_mask: Tensor | None = None
    ) -> Tensor:
        """Logits (B, T, V); `cross_mask` (B, S) stands in for that of the memory's padding."""
        mask = src_ids != PAD_ID if cross_mask is None else cross_mask
        tgt = self.middle.decode(
            self.tgt_input(tgt_in), self.encode(src_ids), mask, tgt_in != PAD_ID
        )
        logits: Tensor = self.output(tgt)
        return logits


def config_of(name: str) -> ModelConfig:
    return load_config(CLASSIC / f"{name}.toml").model


def model_of(name: str, backend: str) -> TranslationModel:
    """The model of a design's config, but small; weights are random, biases and positions too."""
    options = {**config_of(name).model_dump(exclude={"backend"}), **vars(SMALL)}
    model = tiny_model(backend, src_vocab_size=SRC_VOCAB, tgt_vocab_size=TGT_VOCAB, options=options)
    return randomised(model).double()


def rebuilt(name: str, model: TranslationModel) -> Rebuilt:
    """The design in plain parts, with the weights of `model`."""
    twin = Rebuilt(DESIGNS[name], SMALL, src_vocab=SRC_VOCAB, tgt_vocab=TGT_VOCAB).double().eval()
    twin.load(model.state_dict())
    return twin


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def assert_far_apart(actual: Tensor, expected: Tensor) -> None:
    assert (actual - expected).abs().max() > 1e-2


def test_every_classic_config_is_rebuilt_here() -> None:
    assert {path.stem for path in CLASSIC.glob("*.toml")} == set(DESIGNS)


@either_backend
@every_design
def test_memory_equals_that_of_the_design_rebuilt(name: str, backend: str) -> None:
    model = model_of(name, backend)
    memory, _ = model.encode(SRC_IDS)
    assert_same(memory[SRC_REAL], rebuilt(name, model).encode(SRC_IDS)[SRC_REAL])


@either_backend
@every_design
def test_logits_equal_those_of_the_design_rebuilt(name: str, backend: str) -> None:
    model = model_of(name, backend)
    assert_same(model(SRC_IDS, TGT_IN)[TGT_REAL], rebuilt(name, model)(SRC_IDS, TGT_IN)[TGT_REAL])


def test_embeddings_of_the_page_reach_its_layers_with_deviation_one() -> None:
    options = {**config_of("page").model_dump(exclude={"backend"}), **vars(SMALL)}
    model = tiny_model(src_vocab_size=4000, tgt_vocab_size=4000, options=options)
    deviations = [each.weight.std().item() for each in (model.src_embedding, model.tgt_embedding)]
    assert [deviation * model.scale for deviation in deviations] == pytest.approx(
        [1.0, 1.0], rel=0.02
    )


def misrouted(design: Rebuilt, roles: list[int]) -> Rebuilt:
    """`design`, whose queries, keys and values go through the maps of other `roles`."""
    for module in design.modules():
        if isinstance(module, Attention):
            module.maps = nn.ModuleList(module.maps[role] for role in roles)
    return design


@either_backend
@pytest.mark.parametrize("name", ["slides-torch", "slides-scratch", "thread", "page"])
def test_memory_with_its_padding_shown_would_change_the_logits(name: str, backend: str) -> None:
    model = model_of(name, backend)
    unmended = rebuilt(name, model)(SRC_IDS, TGT_IN, cross_mask=torch.ones_like(SRC_REAL))
    assert_far_apart(unmended[TGT_REAL], model(SRC_IDS, TGT_IN)[TGT_REAL])


@either_backend
@pytest.mark.parametrize(
    ("name", "roles"),
    [
        pytest.param("slides-scratch", [1, 1, 1], id="slides: all through the key's"),
        pytest.param("page", [0, 1, 0], id="page: values through the query's"),
        pytest.param("thread", [3, 2, 1, 0, *range(4, 12)], id="thread: queries of another head"),
    ],
)
def test_another_projection_would_change_the_logits(
    name: str, roles: list[int], backend: str
) -> None:
    model = model_of(name, backend)
    unmended = misrouted(rebuilt(name, model), roles)
    assert_far_apart(unmended(SRC_IDS, TGT_IN)[TGT_REAL], model(SRC_IDS, TGT_IN)[TGT_REAL])


@either_backend
@every_design
def test_places_in_another_order_would_change_the_logits(name: str, backend: str) -> None:
    model = model_of(name, backend)
    moved = rebuilt(name, model)
    for side in (moved.src_input, moved.tgt_input):
        table = side.waves if DESIGNS[name].places == "waves" else side.table.weight.data
        table.copy_(table.roll(1, 0))
    assert_far_apart(moved(SRC_IDS, TGT_IN)[TGT_REAL], model(SRC_IDS, TGT_IN)[TGT_REAL])


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def whole(name: str, src_vocab: int, tgt_vocab: int) -> tuple[TranslationModel, Rebuilt]:
    """The model of a config and the design at its published sizes, both without memory for the
    weights.
    """
    with torch.device("meta"):
        options = config_of(name).model_dump()
        model = TranslationModel(
            src_vocab_size=src_vocab,
            tgt_vocab_size=tgt_vocab,
            generator=torch.default_generator,
            **options,
        )
        design = Rebuilt(DESIGNS[name], PUBLISHED[name], src_vocab=src_vocab, tgt_vocab=tgt_vocab)
    return model, design


def test_note_has_as_many_parameters_as_published() -> None:
    model, design = whole("note", 10_000, 8_200)
    assert (count(model), count(design)) == (26_201_096, 26_201_096)


@every_design
def test_config_has_as_many_parameters_as_the_design(name: str) -> None:
    model, design = whole(name, 8002, 6274)
    assert count(model) == count(design)


@pytest.mark.parametrize("name", ["thread", "page"])
def test_stacks_have_as_many_parameters_as_the_paper_has_but_for_the_last_norms(name: str) -> None:
    # The thread's model takes embedded sentences, so stacks are all it has.
    model, _ = whole(name, 8002, 6274)
    with torch.device("meta"):
        base = nn.Transformer(batch_first=True)
    assert count(model.get_submodule("backend")) == count(base) - 2 * 2 * 512


@every_design
def test_config_has_the_sizes_of_its_source(name: str) -> None:
    config = config_of(name)
    assert {size: getattr(config, size) for size in vars(SMALL)} == vars(PUBLISHED[name])


@pytest.mark.parametrize(
    ("name", "everywhere", "on_weights", "in_feed_forward"),
    [
        ("slides-torch", 0.1, 0.1, 0.1),
        ("slides-scratch", 0.1, 0.1, 0.1),
        ("page", 0.0, 0.0, 0.0),
        ("note", 0.1, 0.1, 0.1),
        ("thread", 0.3, 0.3, 0.3),
    ],
)
def test_config_has_the_dropout_of_its_source(
    name: str, everywhere: float, on_weights: float, in_feed_forward: float
) -> None:
    config = config_of(name)
    rates = (config.dropout, config.attention_dropout, config.activation_dropout)
    assert rates == (everywhere, on_weights, in_feed_forward)


def test_notebook_has_the_dropout_of_its_source_on_attention_weights() -> None:
    assert config_of("notebook").attention_dropout == 0.1
