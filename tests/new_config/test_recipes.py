"""Keys by the size of the corpus: few pairs get many passes, many pairs a large model."""

import logging
import re
from pathlib import Path

import numpy as np
import pytest
import spanish
import torch
from learned import learn_tokenizers

from mt_cli.config.load import load_config, parse_config
from mt_cli.config.schema import Config, FilesConfig, TokenizerConfig
from mt_cli.data.prepare import prepare_corpus
from mt_cli.data.prepared import open_prepared
from mt_cli.data.encoded import EncodedSplit, Sentences
from mt_cli.machine.device import Runtime
from mt_cli.model.build import build_model
from mt_cli.new_config.new_config import EncodedSample, new_config
from mt_cli.new_config.recipes import CorpusSize, recipe_for, suited_model, suited_training
from mt_cli.training.trainer import Trainer

TOKENIZERS = learn_tokenizers(
    [("ein Hund", "a dog")],
    TokenizerConfig(vocab_size=280),
    src_lang="de",
    tgt_lang="en",
    lowercase=False,
)


def size_of(num_pairs: int) -> CorpusSize:
    """A corpus of sentences of 50 bytes a side."""
    num_bytes = num_pairs * 100
    return CorpusSize(num_pairs, num_bytes, num_words=min(50_000, num_pairs), num_letters=70)


def sample_of(num_pairs: int) -> EncodedSample:
    """The same in tokens: about 16 a side."""
    count = min(num_pairs, 50_000)
    lengths = np.random.default_rng(0).integers(8, 25, count)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    side = Sentences(np.zeros(offsets[-1], np.int32), offsets)
    return EncodedSample(TOKENIZERS, EncodedSplit(side, side), num_pairs / count)


def config_for(num_pairs: int, parent: Config | None = None) -> Config:
    size = size_of(num_pairs)
    recipe = recipe_for(size)
    tables = suited_model(size, recipe, parent)
    training = suited_training(recipe, sample_of(num_pairs), parse_config(tables), parent)
    return parse_config({**tables, "training": training})


SIZES = (100, 775, 5_000, 29_000, 160_000, 4_500_000)


@pytest.mark.parametrize("num_pairs", SIZES)
def test_every_corpus_gets_enough_updates(num_pairs: int) -> None:
    config = config_for(num_pairs)
    updates = sample_of(num_pairs).updates_per_epoch(config) * config.training.max_epochs
    assert updates >= 1000
    assert config.training.num_warmup_steps(updates) < updates / 2


def test_larger_corpora_get_larger_models_and_fewer_passes() -> None:
    configs = [config_for(num_pairs) for num_pairs in SIZES]
    sizes = [
        (c.tokenizer.vocab_size, c.model.d_model, c.training.tokens_per_batch) for c in configs
    ]
    assert sizes == sorted(sizes)
    epochs = [c.training.max_epochs for c in configs]
    assert epochs == sorted(epochs, reverse=True)


def test_fine_tuning_keeps_the_model_and_lowers_the_rate() -> None:
    parent = parse_config({"model": {"d_model": 64, "dropout": 0.3}, "training": {"peak_lr": 2e-3}})
    suited = config_for(775, parent)
    assert (suited.model, suited.tokenizer) == (parent.model, parent.tokenizer)
    assert suited.training.peak_lr == 5e-4


def test_a_student_of_as_many_pairs_is_the_ready_models_recipe() -> None:
    student = recipe_for(size_of(29_000)).of_student()
    config = load_config(Path(__file__).resolve().parents[3] / "configs/multi30k-tiny-student.toml")
    for key in ("d_model", "num_heads", "encoder_layers", "decoder_layers", "d_ff", "dropout"):
        assert getattr(student, key) == getattr(config.model, key)
    assert student.vocab_size == config.tokenizer.vocab_size


@pytest.mark.parametrize("num_pairs", SIZES)
def test_every_student_is_a_model_that_can_be_made(num_pairs: int) -> None:
    size = size_of(num_pairs)
    tables = suited_model(size, recipe_for(size).of_student())
    model = parse_config(tables).model
    assert model.decoder_layers < model.encoder_layers
    assert model.d_model <= recipe_for(size).d_model


def test_updates_are_announced_as_training_will_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = tuple(Path(f"corpus.{lang}") for lang in ("es", "en"))
    for path, lines in zip(paths, zip(*spanish.pairs(400), strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    caplog.set_level(logging.INFO)
    files = {"train": FilesConfig(src=paths[:1], tgt=paths[1:])}
    text, _ = new_config(files, output=Path("mine.toml"))
    config = load_config(Path("mine.toml"))
    prepared = prepare_corpus(config, out=Path("out"))
    assert prepared.is_new
    announced = re.search(r"training: ([\d,]+) updates, about \S+ (s|min|h) here", caplog.text)
    assert announced is not None
    made = steps_of(config, Path("out"))
    assert abs(int(announced[1].replace(",", "")) - made) <= config.training.max_epochs
    assert f"About {announced[1]} updates" in text


def steps_of(config: Config, folder: Path) -> int:
    """Updates that training makes."""
    prepared = open_prepared(folder)
    model = build_model(config.model, prepared.tokenizers, seed=1)
    runtime = Runtime(torch.device("cpu"), "fp32")
    return Trainer(
        model, prepared.split("train"), config.training, runtime=runtime, seed=1
    ).total_steps
