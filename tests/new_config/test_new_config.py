"""`new_config`: what it announces is what a training with its config does."""

import logging
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import spanish
import torch
from workspace import SAMPLE

from mt_cli.config.load import load_config
from mt_cli.config.schema import Config, FilesConfig
from mt_cli.data.prepare import prepare_corpus
from mt_cli.data.prepared import open_prepared
from mt_cli.machine.device import Runtime
from mt_cli.model.model import build_model
from mt_cli.new_config.new_config import new_config
from mt_cli.training.trainer import Trainer

Pairs = Sequence[tuple[str, str]]


def sample_pairs() -> Pairs:
    """The training pairs of the bundled sample."""
    sides = [SAMPLE.joinpath(f"train.{lang}").read_text(encoding="utf-8") for lang in ("de", "en")]
    src, tgt = (side.splitlines() for side in sides)
    return list(zip(src, tgt, strict=True))


def random_pairs() -> Pairs:
    """Sentences of random words, whose lengths differ widely."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(1, 8))) for _ in range(300)]
    pairs = []
    for _ in range(600):
        src, tgt = (" ".join(rng.choices(words, k=rng.randint(1, 40))) for _ in range(2))
        pairs.append((src, tgt))
    return pairs


@pytest.mark.parametrize(
    "pairs",
    [sample_pairs(), spanish.pairs(), random_pairs()],
    ids=["sample", "Spanish", "random"],
)
def test_updates_are_announced_as_training_will_make_them(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO)
    paths = (Path("corpus.de"), Path("corpus.en"))
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text, _ = new_config(
        {"train": FilesConfig(src=paths[:1], tgt=paths[1:])}, output=Path("a.toml")
    )
    config = load_config(Path("a.toml"))
    prepare_corpus(config, out=Path("out"))
    announced = re.search(r"training: about ([\d,]+) updates", caplog.text)
    assert announced is not None
    assert f"about {announced[1]} updates" in text
    made = steps_of(config, Path("out"))
    assert int(announced[1].replace(",", "")) == pytest.approx(made, rel=0.1)


def steps_of(config: Config, folder: Path) -> int:
    """Updates that training makes."""
    prepared = open_prepared(folder)
    model = build_model(config.model, prepared.tokenizers, seed=1)
    trainer = Trainer(
        model,
        prepared.split("train"),
        config.training,
        runtime=Runtime(torch.device("cpu"), "fp32"),
        seed=1,
    )
    return trainer.total_steps
