"""`new_config`: keys by the size of the corpus, and updates as a training makes them."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import spanish
from tiny import CPU
from workspace import SAMPLE

from mt_cli.config.load import load_config, parse_config
from mt_cli.config.schema import Config, FilesConfig
from mt_cli.data.prepare import Inputs, prepare_corpus
from mt_cli.data.prepared import open_prepared
from mt_cli.data.size import CorpusSize, TokenCount, measure
from mt_cli.model.model import build_model
from mt_cli.new_config import model_tables, new_config, recipe_for, training_table
from mt_cli.training.trainer import Trainer

Pairs = Sequence[tuple[str, str]]


def sample_pairs() -> Pairs:
    """The training pairs of the bundled sample."""
    src, tgt = (SAMPLE.joinpath(f"train.{lang}").read_text("utf-8") for lang in ("de", "en"))
    return list(zip(src.splitlines(), tgt.splitlines(), strict=True))


@pytest.mark.parametrize("pairs", [sample_pairs(), spanish.pairs()], ids=["sample", "Spanish"])
def test_updates_are_announced_as_training_will_make_them(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO)
    paths = (Path("corpus.de"), Path("corpus.en"))
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = {"train": FilesConfig(src=paths[:1], tgt=paths[1:])}
    text, _ = new_config(files, output=Path("a.toml"))
    config = load_config(Path("a.toml"))
    prepare_corpus(Inputs(config), Path("out"))
    announced = re.search(r"training: about ([\d,]+) updates", caplog.text)
    assert announced is not None
    assert f"{announced[1]} updates" in text
    prepared = open_prepared(Path("out"))
    model = build_model(config.model, prepared.tokenizers, seed=1)
    trainer = Trainer(model, prepared.split("train"), config.training, runtime=CPU, seed=1)
    assert int(announced[1].replace(",", "")) == pytest.approx(trainer.total_steps, rel=0.1)


def test_a_tokenizer_of_lower_case_is_measured_with_text_in_lower_case() -> None:
    pair = (b"Ein HUND\n", b"A DOG\n")
    assert measure([pair], lowercase=True).sample == [("ein hund", "a dog")]
    assert measure([pair]).sample == [("Ein HUND", "A DOG")]


# Recipes

SIZES = (100, 775, 5_000, 29_000, 160_000, 4_500_000)


def size_of(num_pairs: int) -> CorpusSize:
    """A corpus of sentences of 50 bytes a side."""
    num_words = min(50_000, num_pairs)
    return CorpusSize(num_pairs, 100 * num_pairs, num_words, num_letters=70, sample=[])


def count_of(num_pairs: int) -> TokenCount:
    """The same in tokens: 16 a side, beside `</s>`."""
    return TokenCount(num_pairs, 32 * num_pairs, 17 * num_pairs)


def config_for(num_pairs: int, parent: Config | None = None) -> Config:
    size = size_of(num_pairs)
    recipe = recipe_for(size)
    training = training_table(recipe, count_of(num_pairs), parent)
    return parse_config({**model_tables(size, recipe, parent), "training": training})


@pytest.mark.parametrize("num_pairs", SIZES)
def test_every_corpus_gets_enough_updates(num_pairs: int) -> None:
    training = config_for(num_pairs).training
    updates = count_of(num_pairs).updates(training.tokens_per_batch) * training.max_epochs
    assert updates >= 1000
    assert training.num_warmup_steps(updates) < updates / 2


def test_fine_tuning_keeps_the_model_and_lowers_the_rate() -> None:
    parent = parse_config({"model": {"d_model": 64, "dropout": 0.3}, "training": {"peak_lr": 2e-3}})
    suited = config_for(775, parent)
    assert (suited.model, suited.tokenizer) == (parent.model, parent.tokenizer)
    assert suited.training.peak_lr == 5e-4
