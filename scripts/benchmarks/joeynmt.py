"""JoeyNMT's training speed with a config's model and data, by its own command.

It has to be installed apart, because it wants other versions of our packages: `benchmarks.train` is told its
interpreter.
"""

import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.memory import watched
from mt_cli.artefacts.prepared import open_prepared
from mt_cli.artefacts.split_files import SIDES
from mt_cli.config import Config
from mt_cli.data.split import Sentences

SPEED = re.compile(r"Tokens per Sec: +(\d+)")
WORDS_APART = 4
"""Of its vocabulary, the entries that are no words: <unk>, <pad>, <s>, </s>."""


@dataclass(frozen=True)
class Speed:
    """What JoeyNMT did."""

    tokens_per_s: float
    """Target tokens, the median of all rounds but the first."""
    first_round_after_s: float
    peak_mb: float


def measure(python: Path, config: Config, data: Path, *, rounds: int, updates: int, threads: int) -> Speed:
    """Train for one round and `rounds` more, of so many `updates`, with the interpreter `python`.

    Raises:
        OSError: it cannot be started.
        RuntimeError: it has failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vocab_size = _write_data(data, folder)
        # JSON is YAML too.
        settings = _settings(config, vocab_size, updates=updates, rounds=rounds)
        folder.joinpath("config.yaml").write_text(json.dumps(settings))
        begin = time.perf_counter()
        with (
            subprocess.Popen(
                [python, "-m", "joeynmt", "train", "config.yaml", "--skip-test"],
                cwd=folder,
                env={"OMP_NUM_THREADS": str(threads), "PATH": "/usr/bin:/bin"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process,
            watched(process.pid) as memory,
        ):
            assert process.stdout is not None
            found = list(_speeds(process.stdout))
        if process.returncode or len(found) < 2:
            raise RuntimeError(f"{python} -m joeynmt failed, with {process.returncode}")
    return Speed(statistics.median(speed for _, speed in found[1:]), found[0][0] - begin, memory.whole)


def _speeds(lines: Iterator[str]) -> Iterator[tuple[float, float]]:
    """When each round ended, and its tokens per second."""
    for line in lines:
        if match := SPEED.search(line):
            yield time.perf_counter(), float(match[1])


def _write_data(data: Path, folder: Path) -> int:
    """Our ids as words of a made-up language; gives the size of the vocabulary."""
    prepared = open_prepared(data)
    for name in ("train", "val"):
        split = prepared.split(name)
        for side, sequences in zip(SIDES, (split.src, split.tgt), strict=True):
            folder.joinpath(f"{name}.{side}").write_text("\n".join(_words(sequences)) + "\n")
    size = max(prepared.tokenizers.src.vocab_size, prepared.tokenizers.tgt.vocab_size)
    words = ["<unk>", "<pad>", "<s>", "</s>", *(f"w{i}" for i in range(WORDS_APART, size))]
    folder.joinpath("words.txt").write_text("\n".join(words) + "\n")
    return size


def _words(sequences: Sentences) -> Iterator[str]:
    for i in range(len(sequences)):
        yield " ".join(f"w{int(word)}" for word in np.asarray(sequences[i]))


def _settings(config: Config, vocab_size: int, *, updates: int, rounds: int) -> dict[str, object]:
    model, training = config.model, config.training
    side = {"level": "word", "lowercase": False, "max_length": model.max_len, "voc_file": "words.txt"}
    embeddings = {"embedding_dim": model.d_model, "scale": True, "dropout": model.dropout}
    half = {
        "type": "transformer",
        "num_heads": model.num_heads,
        "embeddings": embeddings,
        "hidden_size": model.d_model,
        "ff_size": model.d_ff,
        "dropout": model.dropout,
        "layer_norm": model.norm,
    }
    return {
        "name": "bench",
        "joeynmt_version": "2.3.0",
        "model_dir": "out",
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": "train",
            "dev": "val",
            "dataset_type": "plain",
            "src": {"lang": "src", "voc_limit": vocab_size, **side},
            "trg": {"lang": "tgt", "voc_limit": vocab_size, **side},
        },
        "testing": {"beam_size": 1, "eval_metrics": ["bleu"]},
        "training": {
            "optimizer": "adam",
            "learning_rate": 5e-4,
            "scheduling": "noam",
            "learning_rate_factor": 1,
            "learning_rate_warmup": 4000,
            "learning_rate_min": 0.0,
            "loss": "crossentropy",
            "label_smoothing": training.label_smoothing,
            "normalization": "tokens",
            "clip_grad_norm": 1.0,
            "batch_type": "token",
            "batch_size": training.tokens_per_batch,
            "epochs": 1000,
            "updates": (rounds + 1) * updates,
            "logging_freq": updates,
            "validation_freq": 10**6,
        },
        "model": {
            "tied_embeddings": model.tie == "all",
            "tied_softmax": model.tie != "none",
            "initializer": "xavier_uniform",
            "bias_initializer": "zeros",
            "embed_initializer": "normal",
            "encoder": {"num_layers": model.encoder_layers, **half},
            "decoder": {"num_layers": model.decoder_layers, **half},
        },
    }
