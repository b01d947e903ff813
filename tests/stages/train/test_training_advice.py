"""Warnings before the first update and after the last: what cannot work is said, with what to do."""

from dataclasses import replace
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli.config import Config, parse_config
from mt_cli.stages.train.advice import Plan, after_training, before_training

SOUND = Plan(num_pairs=29_000, num_tokens=900_000, vocab_size=8000, total_steps=1500, steps_per_epoch=125)
SOURCES = [f"satz {i}" for i in range(40)]


def with_training(**keys: object) -> Config:
    return parse_config({"training": keys})


def test_sound_training_is_not_warned_about() -> None:
    assert before_training(Config(), SOUND) == []


def test_warmup_as_long_as_training_is_warned_about() -> None:
    (warning,) = before_training(with_training(warmup_steps=1500), SOUND)
    assert warning.startswith("the warm-up of 1500 updates is not over when training ends after 1500:")
    assert warning.endswith("set training.warmup_steps = 0.1, a tenth of them")
    assert before_training(with_training(warmup_steps=1499), SOUND) == []


def test_few_updates_are_warned_about_with_keys_that_give_enough() -> None:
    small = Plan(num_pairs=775, num_tokens=23_000, vocab_size=900, total_steps=36, steps_per_epoch=3)
    (warning,) = before_training(Config(), small)
    assert warning.startswith("training makes only 36 updates, 3 an epoch, from 775 pairs;")
    # 11,500 tokens a side by 704 are 17 updates an epoch; 59 epochs of them 1,000.
    assert "training.tokens_per_batch = 704 and training.max_epochs = 59" in warning


def test_few_updates_that_were_asked_for_are_not_warned_about() -> None:
    assert before_training(with_training(max_steps=20), replace(SOUND, total_steps=20)) == []


def test_batch_that_holds_the_whole_corpus_is_warned_about() -> None:
    (warning,) = before_training(with_training(max_epochs=1500), replace(SOUND, steps_per_epoch=1))
    assert warning.startswith("a batch of training.tokens_per_batch = 4096 holds the whole corpus of 29,000")
    accumulating = with_training(max_epochs=1500, accumulation=10)
    (warning,) = before_training(accumulating, replace(SOUND, steps_per_epoch=1))
    assert warning.startswith("an update of 10 batches of training.tokens_per_batch = 4096 holds the whole")
    assert warning.endswith("; a smaller accumulation learns in fewer epochs")


@pytest.mark.parametrize(
    ("tokenizer", "cure"),
    [
        ({"kind": "bpe"}, "lower tokenizer.vocab_size"),
        ({"kind": "spacy"}, "raise tokenizer.min_freq"),
    ],
)
def test_vocabulary_that_the_text_cannot_fill_is_warned_about(tokenizer: object, cure: str) -> None:
    config = parse_config({"tokenizer": tokenizer})
    (warning,) = before_training(config, replace(SOUND, num_tokens=40_000))
    assert warning.startswith("the vocabulary of 8,000 entries is large for 29,000 training pairs:")
    assert warning.endswith(f"each entry occurs 5 times on average; {cure}, then prepare again")


def test_translations_that_are_all_alike_are_warned_about() -> None:
    (warning,) = after_training(5.0, hyps=["a man ."] * 20 + ["a dog ."] * 20, sources=SOURCES)
    assert "40 different sources got only 2 different translations, 5.00 BLEU; look at the loss" in warning


def test_bleu_under_one_is_warned_about() -> None:
    (warning,) = after_training(0.09, hyps=SOURCES, sources=SOURCES)
    assert warning.startswith("the model has not learnt to translate: 0.09 BLEU on val; look at the loss")


def test_model_that_has_learnt_is_not_warned_about() -> None:
    assert after_training(20.0, hyps=SOURCES, sources=SOURCES) == []
    assert after_training(20.0, hyps=["a man ."] * 3, sources=["ein mann"] * 3) == []


def test_train_warns_before_the_first_update_and_after_the_last(workspace: Workspace, tmp_path: Path) -> None:
    late = ("--set", "training.warmup_steps=400", "--set", "training.max_epochs=2")
    outcome = workspace.call("train", "tiny.toml", "--run", tmp_path / "run", *late)
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("warning: training makes only"))
    warmup = next(i for i, line in enumerate(lines) if line.startswith("warning: the warm-up of 400 updates"))
    step = next(i for i, line in enumerate(lines) if line.endswith("  best"))
    last = next(i for i, line in enumerate(lines) if line.startswith("warning: the model "))
    assert max(first, warmup) < step < last


def test_resumed_training_is_not_warned_about_again(workspace: Workspace, tmp_path: Path) -> None:
    run = ("--run", tmp_path / "run")
    assert workspace.call("train", "tiny.toml", *run, "--max-steps", 2).code == 0
    outcome = workspace.call("train", "tiny.toml", *run, "--max-steps", 3, "--resume")
    assert "the warm-up of" not in outcome.err
