"""`Ensemble`: predicts the mean of its members' predictions, and is searched like any model."""

import pytest
import torch
from tiny import BACKENDS, CPU, random_ids, randomised, tiny_model, with_bos

from mt_cli.config.schema import DecodingConfig
from mt_cli.decoding.search import Hyp
from mt_cli.model.model import Ensemble, TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID
from mt_cli.translation.searcher import Searcher

SMALL = randomised(tiny_model(decoder_layers=2), seed=3, std=0.4)
WIDE = randomised(
    tiny_model(d_model=16, d_ff=8, num_heads=4, max_len=12, output_bias=True), seed=5, std=0.3
)
SRC_IDS = random_ids(3, 7, lengths=[7, 4, 2])
TGT_IN = with_bos(random_ids(3, 4, seed=1))
SOURCES = [row[row != PAD_ID].tolist() for row in SRC_IDS]


def searched(
    model: TranslationModel | Ensemble, *, batch_size: int = 0, beam_size: int = 1
) -> list[list[Hyp]]:
    config = DecodingConfig(beam_size=beam_size, length_penalty=0.7, batch_size=batch_size)
    searcher = Searcher(model, config, runtime=CPU, forbidden_ids=(PAD_ID, BOS_ID))
    return searcher.n_best(SOURCES, n_best=1)


@torch.no_grad()
@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_give_the_mean_of_full_passes(backend: str) -> None:
    third = randomised(tiny_model(backend), seed=9)
    members = (SMALL, WIDE, third)
    expected = torch.stack([torch.softmax(member(SRC_IDS, TGT_IN), -1) for member in members]).mean(
        0
    )
    ensemble = Ensemble(members)
    state = ensemble.start(SRC_IDS)
    for t in range(TGT_IN.shape[1]):
        assert state.length == t
        log_p = ensemble.step(TGT_IN[:, t : t + 1], state)
        torch.testing.assert_close(log_p.exp().squeeze(1), expected[:, t])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_batch_finds_what_its_sentences_find_alone(beam_size: int) -> None:
    ensemble = Ensemble([SMALL, WIDE])
    together, alone = (searched(ensemble, batch_size=size, beam_size=beam_size) for size in (3, 1))
    assert [hyps[0].ids for hyps in together] == [hyps[0].ids for hyps in alone]


def test_greedy_search_takes_the_likeliest_by_the_mean() -> None:
    ensemble = Ensemble([SMALL, WIDE])
    searcher = Searcher(ensemble, DecodingConfig(), runtime=CPU, forbidden_ids=(PAD_ID, BOS_ID))
    (hyp,) = searcher.best(SOURCES[1:2])
    src_ids = torch.tensor([[*SOURCES[1], EOS_ID]])
    tgt_in = torch.tensor([[BOS_ID, *hyp]])
    with torch.no_grad():
        probs = torch.stack([member(src_ids, tgt_in)[0].softmax(-1) for member in (SMALL, WIDE)])
    probs[..., [PAD_ID, BOS_ID]] = 0
    assert probs.mean(0).argmax(-1).tolist() == [*hyp, EOS_ID]
    assert [*hyp, EOS_ID] not in probs.argmax(-1).tolist(), "neither member alone takes these"


def test_the_shortest_member_sets_the_limit() -> None:
    assert Ensemble([SMALL, WIDE]).longest_sentence == 11
