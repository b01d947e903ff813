"""The contract of both backends: what may influence a logit, and what may not."""

import pytest
import torch
from tiny import BACKENDS, random_ids, randomised, tiny_model, with_bos
from torch import Tensor

from mt_cli.model.model import DecoderState, TranslationModel
from mt_cli.text import PAD_ID


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


@pytest.mark.parametrize("side", ["src", "tgt"])
def test_dropout_spares_no_input_and_no_position(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = randomised(tiny_model(dropout=0.5, positions="learned"))
    ids = random_ids(40, 5)
    embedding, positions = getattr(model, f"{side}_embedding"), getattr(model, f"{side}_positions")
    with torch.no_grad():
        whole = embedding(ids) * model.scale + positions.weight[:5]
    monkeypatch.setattr(model.backend, "encode", lambda src, _: src)
    monkeypatch.setattr(model.backend, "decode", lambda tgt, *_: tgt)
    model.train()
    given = model.encode(ids)[0] if side == "src" else model.hidden(ids, ids)
    dropped = given == 0
    assert 0.4 < dropped.float().mean().item() < 0.6
    assert_same(given[~dropped], 2 * whole[~dropped])


@pytest.mark.parametrize("position", [0, 3])
def test_every_source_token_matters_at_every_target_position(
    model: TranslationModel, position: int
) -> None:
    src, tgt = random_ids(1, 4), random_ids(1, 5, seed=1)
    changed = src.clone()
    changed[:, position] = src[:, position] % 10 + 1
    difference = (logits_of(model, src, tgt) - logits_of(model, changed, tgt)).abs().amax(-1)
    assert (difference > 1e-5).all()


def test_other_rows_of_the_batch_change_nothing(model: TranslationModel) -> None:
    src = random_ids(4, 9, lengths=[3, 9, 1, 6])
    tgt = random_ids(4, 5, seed=1)
    assert_same(logits_of(model, src, tgt)[:1], logits_of(model, src[:1, :3], tgt[:1]))


def test_padding_receives_no_gradient(model: TranslationModel) -> None:
    model(random_ids(2, 6, lengths=[6, 2]), random_ids(2, 3)).sum().backward()
    gradient = model.src_embedding.weight.grad
    assert gradient is not None
    assert gradient[PAD_ID].abs().max() == 0


def test_steps_equal_the_teacher_forced_forward(model: TranslationModel) -> None:
    src, tgt = random_ids(3, 6, lengths=[6, 2, 4]), with_bos(random_ids(3, 8, seed=1))
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


@pytest.mark.parametrize(
    "rows", [[2, 0, 1], [1, 1, 0], [2]], ids=["reorder", "repeat", "keep the last"]
)
def test_kept_sentences_go_on_as_they_would(model: TranslationModel, rows: list[int]) -> None:
    src, tgt = random_ids(3, 6, lengths=[6, 2, 4]), with_bos(random_ids(3, 7, seed=1))
    state = start(model, src)
    steps(model, tgt[:, :3], state)
    state.select(torch.tensor(rows))
    assert state.length == 3
    assert_same(steps(model, tgt[rows, 3:], state), logits_of(model, src, tgt)[rows, 3:])


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
        beams = torch.randint(prefixes.shape[1], (len(sentences), 3), generator=generator)
        state.reorder(beams)
        ids = torch.randint(4, 11, beams.shape, generator=generator)
        each = torch.arange(len(sentences)).unsqueeze(1)
        prefixes = torch.cat([prefixes[each, beams], ids.unsqueeze(-1)], dim=-1)


@pytest.mark.parametrize(("S", "T"), [(17, 3), (3, 17)], ids=["source", "target"])
def test_longer_sequences_are_refused_in_words(model: TranslationModel, S: int, T: int) -> None:  # noqa: N803
    with pytest.raises(ValueError, match=r"17 tokens.* 16"):
        model(random_ids(1, S), random_ids(1, T))


def test_step_past_max_len_is_refused_in_words(model: TranslationModel) -> None:
    state = start(model, random_ids(1, 3))
    steps(model, random_ids(1, 16), state)
    with pytest.raises(ValueError, match=r"17 tokens.* 16"):
        steps(model, random_ids(1, 1), state)


def test_tying_all_needs_one_vocabulary(backend: str) -> None:
    with pytest.raises(ValueError, match="7, 9"):
        tiny_model(backend, tie="all", src_vocab_size=7, tgt_vocab_size=9)


@pytest.mark.parametrize(
    ("scaled", "factor"), [(True, 8**0.5), (False, 1.0)], ids=["scaled", "plain"]
)
def test_encoder_is_given_embeddings_scaled_as_asked(
    backend: str, scaled: bool, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = randomised(tiny_model(backend, scale_embeddings=scaled, positions="learned"))
    # A backend that encodes nothing shows what it is given.
    monkeypatch.setattr(model.backend, "encode", lambda src, src_mask: src)
    given, _ = model.encode(torch.tensor([[5, 9]]))
    expected = (
        model.src_embedding.weight[[5, 9]] * factor
        + model.get_parameter("src_positions.weight")[:2]
    )
    assert_same(given[0], expected)


@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_token_changes_the_logits_from_its_place_on_and_none_before(
    model: TranslationModel, position: int
) -> None:
    src, tgt = random_ids(1, 4), random_ids(1, 5, seed=1)
    changed = tgt.clone()
    changed[:, position] = tgt[:, position] % 10 + 1
    before, after = logits_of(model, src, tgt), logits_of(model, src, changed)
    assert_same(after[:, :position], before[:, :position])
    assert ((after - before).abs().amax(-1)[:, position:] > 1e-4).all()
