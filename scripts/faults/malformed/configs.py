"""Configs that a person could be handed: all that is wrong with them is told, and nothing is begun."""

import gzip
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from faults.malformed.malformation import ESCAPE, Malformation

TRAIN = ("train", "hostile.toml", "--run", "runs/new", "--data", "data/prepared/tiny", "--max-steps", "1")
PREPARE = ("prepare", "hostile.toml")
REFUSED: Mapping[str, bytes] = {
    "nested lists": b"a = " + b"[" * 50_000,
    "nested tables": b"[" + b"a." * 50_000 + b"a]\n",
    "nested inline tables": b"a = " + b"{a = " * 50_000,
    "a number of too many digits": b"[model]\nd_model = " + b"9" * 100_000,
    "no UTF-8": b"[model]\nd_model = \xff\xfe",
    "a NUL": b"[model]\0",
    "two megabytes": b"# " + b"x" * (2 << 20),
    "a key that is an escape": b'[model]\n"d\\u001b[2J\\u202e" = 1\n',
    "a value that is an escape": b'[model]\nnorm = "\\u001b[2J\\u202e"\n',
    "a section that is an escape": b'["\\u001b[2J"]\na = 1\n',
    "a raw escape": f"[model]\nnorm = '{ESCAPE}'\n".encode(),
    "a width beyond all bounds": b"[model]\nd_model = 1000000000000000000\n",
    "layers without end": b"[model]\nencoder_layers = 100000\n",
    "sentences without end": b"[model]\nmax_len = 100000000\n",
    "a width of nothing": b"[model]\nd_model = 0\n",
    "a negative width": b"[model]\nd_model = -8\n",
    "NaN": b"[training]\npeak_lr = nan\n",
    "infinity": b"[training]\npeak_lr = inf\n",
    "threads without end": b"[runtime]\nthreads = 10000000000\n",
    "a million threads": b"[runtime]\nthreads = 1000000\n",
    "a seed beyond all bounds": b"[runtime]\nseed = 9223372036854775808\n",
    "epochs without end": b"[training]\nmax_epochs = 1" + b"0" * 30 + b"\n",
    "tokens without end": b"[training]\ntokens_per_batch = 1" + b"0" * 30 + b"\n",
    "warm-up without end": b"[training]\nwarmup_steps = 1" + b"0" * 400 + b"\n",
    "beams without end": b"[decoding]\nbeam_size = 1" + b"0" * 30 + b"\n",
    "a split that is a path": b'[data]\nsplits = ["train", "val", "../../beside"]\n',
    "a language that is a path": b'[data]\nsrc_lang = "../../beside"\n',
    "many keys": b"".join(b"k%d = 1\n" % i for i in range(50_000)),
    "a list for a section": b"model = [1, 2]\n",
}
UNUSABLE: Mapping[str, str] = {
    "a device": "/dev/zero",
    "a pipe": "pipe",
    "a folder": "corpus",
    "what is not there": "nowhere",
    "a NUL": "a\\u0000b",
    "half a gzip file": "half.gz",
    "a gigabyte in a gzip file": "bomb.gz",
    "a line without end": "endless.txt",
}
"""Names that a config may give to its corpus, and that are no text."""


def malformed_configs() -> Iterator[Malformation]:
    """Every config that cannot be used."""
    for name, content in REFUSED.items():
        yield Malformation(f"a config with {name}", partial(_write, content=content), TRAIN, (2,))
    for name, text in {
        "a model that does not fit": "d_model = 1048576\nnum_heads = 1",
        "layers that do not fit": "d_model = 65536\nencoder_layers = 1000",
    }.items():
        yield Malformation(f"a config with {name}", partial(_extend, text=text), TRAIN, (5,))
    for name, path in UNUSABLE.items():
        yield Malformation(f"a corpus that is {name}", partial(_name_corpus, path=path), PREPARE, (2, 3))
    yield Malformation("a config that is a folder", _make_folder, TRAIN, (2,))
    yield Malformation("a config that is a link to a device", _link, TRAIN, (2,))
    yield Malformation("a config of zeros", _zeros, TRAIN, (2,))


def _write(folder: Path, *, content: bytes) -> None:
    (folder / "hostile.toml").write_bytes(content)


def _extend(folder: Path, *, text: str) -> None:
    """The config of the corpus at hand, with other keys of [model]."""
    tiny = (folder / "tiny.toml").read_text()
    keys = {line.split(" = ")[0] for line in text.split("\n")}
    lines = [line for line in tiny.split("\n") if line.split(" = ")[0] not in keys]
    (folder / "hostile.toml").write_text("\n".join(lines).replace("[model]", f"[model]\n{text}"))


def _name_corpus(folder: Path, *, path: str) -> None:
    os.mkfifo(folder / "pipe")
    content = gzip.compress(b"Ein Hund.\n" * 9999)
    (folder / "half.gz").write_bytes(content[: len(content) // 2])
    (folder / "bomb.gz").write_bytes(gzip.compress(bytes(1 << 26), 1) * 16)
    (folder / "endless.txt").write_bytes(b"x" * (1 << 22))
    tiny = (folder / "tiny.toml").read_text()
    (folder / "hostile.toml").write_text(tiny.replace("corpus/train.de", path))


def _make_folder(folder: Path) -> None:
    (folder / "hostile.toml").mkdir()


def _link(folder: Path) -> None:
    (folder / "hostile.toml").symlink_to("/dev/zero")


def _zeros(folder: Path) -> None:
    with (folder / "hostile.toml").open("wb") as file:
        file.truncate(1 << 37)
