"""The contract of both backends: what may influence a logit, and what may not; ensembles, and
how weights begin.
"""

import math

import pytest
import torch
from tiny import BACKENDS, CPU, random_ids, randomised, tiny_model, with_bos
from torch import Tensor

from mt_cli.config.schema import DecodingConfig
from mt_cli.model.model import DecoderState, Ensemble, TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID
from mt_cli.translation.torch_engine import TorchEngine


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["pre", "post"])
def model(backend: str, request: pytest.FixtureRequest) -> TranslationModel:
    return randomised(tiny_model(backend, norm=request.param, decoder_layers=2, output_bias=True))


@torch.no_grad()
def logits_of(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
    logits: Tensor = model(src_ids, tgt_in)
    return logits


@torch.no_grad()
def steps(model: TranslationModel, tgt_in: Tensor, state: DecoderState) -> Tensor:
    """Logits (B, T, V) of feeding `tgt_in` (B, T) token by token."""
    return torch.cat([model.step(ids, state) for ids in tgt_in.unsqueeze(-1).unbind(1)], dim=1)


@torch.no_grad()
def start(model: TranslationModel, src_ids: Tensor) -> DecoderState:
    return model.start(src_ids)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize(("scaled", "factor"), [(True, 8**0.5), (False, 1.0)])
@pytest.mark.parametrize("side", ["src", "tgt"])
def test_inputs_are_scaled_embeddings_and_positions_of_which_dropout_spares_none(
    side: str, scaled: bool, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = randomised(tiny_model(dropout=0.5, positions="learned", scale_embeddings=scaled))
    ids = random_ids(40, 5)
    embedding, positions = getattr(model, f"{side}_embedding"), getattr(model, f"{side}_positions")
    with torch.no_grad():
        whole = embedding(ids) * factor + positions.weight[:5]
    # A backend that computes nothing shows what it is given.
    monkeypatch.setattr(model.backend, "encode", lambda src, _: src)
    monkeypatch.setattr(model.backend, "decode", lambda tgt, *_: tgt)
    model.train()
    given = model.encode(ids)[0] if side == "src" else model.hidden(ids, ids)
    dropped = given == 0
    assert 0.4 < dropped.float().mean().item() < 0.6
    assert_same(given[~dropped], 2 * whole[~dropped])


def test_other_rows_of_the_batch_change_nothing(model: TranslationModel) -> None:
    src = random_ids(4, 9, lengths=[3, 9, 1, 6])
    tgt = random_ids(4, 5, seed=1)
    assert_same(logits_of(model, src, tgt)[:1], logits_of(model, src[:1, :3], tgt[:1]))


def test_steps_equal_the_teacher_forced_forward(model: TranslationModel) -> None:
    src, tgt = random_ids(3, 6, lengths=[6, 2, 4]), with_bos(random_ids(3, 8, seed=1))
    assert_same(steps(model, tgt, start(model, src)), logits_of(model, src, tgt))


@torch.no_grad()
def test_many_sources_are_encoded_in_parts(
    model: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.model.model.ENCODED_TOGETHER", 14)
    src = random_ids(7, 9, lengths=[9, 7, 8, 4, 1, 2, 5])
    tgt = with_bos(random_ids(7, 3, seed=1))
    assert_same(steps(model, tgt, start(model, src)), logits_of(model, src, tgt))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_bf16_is_close_to_fp32(backend: str, norm: str) -> None:
    model = randomised(tiny_model(backend, norm=norm, decoder_layers=2), std=0.25)
    src, tgt = random_ids(3, 6, lengths=[6, 2, 4]), with_bos(random_ids(3, 5, seed=1))
    exact = logits_of(model, src, tgt)
    with torch.autocast("cpu", torch.bfloat16):
        whole = logits_of(model, src, tgt)
        stepped = steps(model, tgt, start(model, src))
    assert whole.dtype == stepped.dtype == torch.bfloat16
    # A tenth of what logits differ by among themselves.
    torch.testing.assert_close(whole.float(), exact, rtol=0, atol=exact.std().item() / 10)
    torch.testing.assert_close(stepped.float(), exact, rtol=0, atol=exact.std().item() / 10)


@torch.no_grad()
def test_beams_go_on_from_those_they_are_told_to(model: TranslationModel) -> None:
    """More positions than fit the cache at first, beams that cross, and a sentence that leaves."""
    generator = torch.Generator().manual_seed(5)
    src = random_ids(3, 5, lengths=[5, 3, 4])
    state, ids = start(model, src), torch.full((3, 1), 2)
    prefixes, sentences = ids.unsqueeze(-1), torch.arange(3)
    for length in range(1, 9):
        logits = model.step(ids, state)
        flat = prefixes.flatten(0, 1)
        whole = model(src[sentences].repeat_interleave(ids.shape[1], 0), flat)[:, -1]
        assert_same(logits.flatten(0, 1), whole)
        if length == 4:
            kept = torch.tensor([2, 1])
            state.select(kept)
            sentences, prefixes = sentences[kept], prefixes[kept]
        if length == 6:
            state.select(torch.tensor([1]))
            sentences, prefixes = sentences[1:], prefixes[1:]
        num_beams = 1 if length == 7 else 3
        beams = torch.randint(prefixes.shape[1], (len(sentences), num_beams), generator=generator)
        state.reorder(beams)
        ids = torch.randint(4, 11, beams.shape, generator=generator)
        each = torch.arange(len(sentences)).unsqueeze(1)
        prefixes = torch.cat([prefixes[each, beams], ids.unsqueeze(-1)], dim=-1)


# Ensembles

SMALL = randomised(tiny_model(decoder_layers=2), seed=3, std=0.4)
WIDE = randomised(
    tiny_model(d_model=16, d_ff=8, num_heads=4, max_len=12, output_bias=True), seed=5, std=0.3
)


@torch.no_grad()
def test_steps_of_an_ensemble_give_the_mean_of_full_passes(backend: str) -> None:
    src, tgt = random_ids(3, 7, lengths=[7, 4, 2]), with_bos(random_ids(3, 4, seed=1))
    members = (SMALL, WIDE, randomised(tiny_model(backend), seed=9))
    expected = torch.stack([member(src, tgt).softmax(-1) for member in members]).mean(0)
    ensemble = Ensemble(members)
    assert ensemble.longest_sentence == 11  # of the shortest member
    state = ensemble.start(src)
    stepped = [ensemble.step(ids.unsqueeze(1), state) for ids in tgt.unbind(1)]
    torch.testing.assert_close(torch.cat(stepped, dim=1).exp(), expected)


@torch.no_grad()
def test_greedy_search_takes_the_likeliest_by_the_mean() -> None:
    ensemble = Ensemble([SMALL, WIDE])
    forbidden = (PAD_ID, BOS_ID)
    torch_engine = TorchEngine(ensemble, DecodingConfig(), runtime=CPU, forbidden_ids=forbidden)
    source = random_ids(3, 7)[1, :4].tolist()
    hyp = torch_engine.search([source])[0][0].ids
    src_ids, tgt_in = torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *hyp]])
    probs = torch.stack([member(src_ids, tgt_in)[0].softmax(-1) for member in (SMALL, WIDE)])
    probs[..., [PAD_ID, BOS_ID]] = 0
    assert probs.mean(0).argmax(-1).tolist() == [*hyp, EOS_ID]
    assert [*hyp, EOS_ID] not in probs.argmax(-1).tolist(), "neither member alone takes these"


# How weights begin

D, F, V = 64, 128, 500


def wide_model(backend: str, **options: object) -> TranslationModel:
    defaults = {"d_model": D, "d_ff": F, "output_bias": True}
    return tiny_model(backend, src_vocab_size=V, tgt_vocab_size=V, options=defaults | options)


def assert_xavier_uniform(matrix: Tensor, rows: int, columns: int) -> None:
    """Uniform numbers between ±bound come close to it, never pass it, and deviate by bound/√3."""
    bound = math.sqrt(6 / (rows + columns))
    assert matrix.shape == (rows, columns)
    assert 0.98 * bound < matrix.abs().max().item() <= bound
    assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize(
    ("name", "rows", "columns", "parts"),
    [
        ("backend.encoder.layers.1.self_attn.in_proj_weight", D, D, 3),
        ("backend.decoder.layers.0.multihead_attn.in_proj_weight", D, D, 3),
        ("backend.encoder.layers.0.self_attn.out_proj.weight", D, D, 1),
        ("backend.decoder.layers.0.linear2.weight", D, F, 1),
        ("output.weight", V, D, 1),
    ],
)
def test_matrices_are_xavier_uniform_each_of_a_packed_one_by_itself(
    backend: str, name: str, rows: int, columns: int, parts: int
) -> None:
    for matrix in wide_model(backend).get_parameter(name).chunk(parts):
        assert_xavier_uniform(matrix, rows, columns)


@pytest.mark.parametrize("side", ["src", "tgt"])
@pytest.mark.parametrize("tie", ["none", "all"])
def test_embeddings_deviate_by_one_over_root_d(backend: str, tie: str, side: str) -> None:
    weight = wide_model(backend, tie=tie).get_parameter(f"{side}_embedding.weight")
    assert weight.std().item() == pytest.approx(1 / math.sqrt(D), rel=0.03)
    assert weight.mean().item() == pytest.approx(0, abs=0.005)


def test_biases_and_learned_positions_are_zero_and_norm_gains_one(backend: str) -> None:
    model = wide_model(backend, positions="learned", max_len=128)
    parameters = dict(model.named_parameters())
    zero = [p for name, p in parameters.items() if name.endswith("bias") or "positions" in name]
    gains = [p for name, p in parameters.items() if "norm" in name and name.endswith("weight")]
    assert len(zero) > 10
    assert len(gains) == 2 * 2 + 3 + 2  # of two encoder layers, a decoder layer, and both ends
    assert {p.abs().max().item() for p in zero} == {0.0}
    assert {(p.min().item(), p.max().item()) for p in gains} == {(1.0, 1.0)}
