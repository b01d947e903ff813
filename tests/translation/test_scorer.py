"""Scores of given pairs against probabilities computed one token at a time."""

import logging
import math
from collections.abc import Sequence

import pytest
import torch
from learned import learn_tokenizers
from tiny import CPU, randomised, tiny_model
from torch import Tensor

from mt_cli.config.schema import TokenizerConfig
from mt_cli.model.model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID
from mt_cli.translation.scorer import PairScore, PairScorer

PAIRS = [
    ("Ein Hund bellt.", "A dog barks."),
    ("Eine Katze schläft auf dem roten Sofa.", "A cat sleeps."),
    ("Rot", "A cat sleeps on the red sofa today, and a dog barks."),
    ("Ein Hund.", ""),
]
SOURCES, TARGETS = [src for src, _ in PAIRS], [tgt for _, tgt in PAIRS]
CONFIG = TokenizerConfig(kind="spacy", vocab_size=100, min_freq=1, joint=False)
TOKENIZERS = learn_tokenizers(PAIRS, CONFIG, src_lang="de", tgt_lang="en", lowercase=False)


def model_of(seed: int) -> TranslationModel:
    model = tiny_model(
        src_vocab_size=TOKENIZERS.src.vocab_size, tgt_vocab_size=TOKENIZERS.tgt.vocab_size
    )
    return randomised(model, seed=seed, std=0.4)


MODELS = [model_of(1), model_of(2)]


def scorer_of(*models: TranslationModel, batch_size: int = 0) -> PairScorer:
    return PairScorer(models, TOKENIZERS, runtime=CPU, batch_size=batch_size)


def log_probs(scorer: PairScorer) -> list[float]:
    return [each.log_prob for each in scorer.score(SOURCES, TARGETS)]


@torch.no_grad()
def log_prob_by_hand(models: Sequence[TranslationModel], source: str, target: str) -> float:
    """Sum of the logs of the models' mean probability of each token, each from its own pass."""
    (src,), (tgt,) = TOKENIZERS.src.encode([source]), TOKENIZERS.tgt.encode([target])
    src_ids = torch.tensor([[*src, EOS_ID]])
    total = 0.0
    for length, wanted in enumerate([*tgt, EOS_ID]):
        prefix = torch.tensor([[BOS_ID, *tgt[:length]]])
        logits = torch.stack([model(src_ids, prefix)[0, -1] for model in models])
        total += math.log(float(logits.double().softmax(-1).mean(0)[wanted]))
    return total


@pytest.mark.parametrize("models", [MODELS[:1], MODELS], ids=["one model", "ensemble"])
def test_score_is_the_log_of_the_translations_probability(models: list[TranslationModel]) -> None:
    expected = [log_prob_by_hand(models, *pair) for pair in PAIRS]
    assert log_probs(scorer_of(*models)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_batches_change_no_score(batch_size: int) -> None:
    apart = log_probs(scorer_of(*MODELS, batch_size=batch_size))
    assert apart == pytest.approx(log_probs(scorer_of(*MODELS)), abs=1e-5)


def test_too_little_memory_gives_the_same_from_smaller_batches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    together = log_probs(scorer_of(*MODELS))
    forward = TranslationModel.forward

    def lacks_memory(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
        if len(src_ids) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(model, src_ids, tgt_in)

    monkeypatch.setattr(TranslationModel, "forward", lacks_memory)
    assert log_probs(scorer_of(*MODELS)) == pytest.approx(together, abs=1e-5)
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_end_of_sentence_counts_as_a_token() -> None:
    scores = scorer_of(*MODELS).score(SOURCES, TARGETS)
    (barks, *_), nothing = TOKENIZERS.tgt.encode(TARGETS), scores[3]
    assert (scores[0].num_tokens, nothing.num_tokens) == (len(barks) + 1, 1)


def test_empty_line_is_certainly_translated_by_an_empty_one() -> None:
    scores = scorer_of(*MODELS).score(["", "  "], ["", "A dog barks."])
    assert scores == [PairScore(0.0, 1), PairScore(-math.inf, 5)]


def test_pair_that_is_too_long_is_impossible_and_named(caplog: pytest.LogCaptureFixture) -> None:
    sources, targets = ["Ein " * 16, "Ein", "Ein"], ["A", "A " * 16, "A"]
    with caplog.at_level(logging.WARNING, logger="mt_cli"):
        scores = scorer_of(*MODELS).score(sources, targets, first_line=7)
    assert [each.log_prob > -math.inf for each in scores] == [False, False, True]
    assert [message.partition(":")[0] for message in caplog.messages] == ["line 7", "line 8"]


def test_case_does_not_matter_where_the_model_knows_lower_case_only() -> None:
    pairs = [(src.lower(), tgt.lower()) for src, tgt in PAIRS]
    tokenizers = learn_tokenizers(pairs, CONFIG, src_lang="de", tgt_lang="en", lowercase=True)
    model = tiny_model(
        src_vocab_size=tokenizers.src.vocab_size, tgt_vocab_size=tokenizers.tgt.vocab_size
    )
    scorer = PairScorer([randomised(model)], tokenizers, runtime=CPU)
    shouted = scorer.score(["EIN HUND BELLT."], ["A Dog Barks."])
    assert shouted == scorer.score(["ein hund bellt."], ["a dog barks."])
