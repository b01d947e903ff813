"""The folder that every case begins with: a tiny corpus, prepared, a model trained on it, and its export.

tiny.toml  corpus/  data/prepared/tiny/  runs/tiny/  exported/tiny/
"""

from importlib.util import find_spec
from pathlib import Path

from faults.case import Case
from faults.shim import Arm

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"
NUM_TRAIN, NUM_TEST, MOST_LETTERS = 24, 4, 40
CONFIG = """\
[data]
corpus = "files"
max_len = 30

[data.files]
train = { src = "corpus/train.de", tgt = "corpus/train.en" }
val = { src = "corpus/val.de", tgt = "corpus/val.en" }
test = { src = "corpus/test.de", tgt = "corpus/test.en" }

[tokenizer]
kind = "spacy"
min_freq = 1

[model]
d_model = 8
num_heads = 2
encoder_layers = 1
decoder_layers = 1
d_ff = 8
max_len = 32

[training]
max_epochs = 3
tokens_per_batch = 64
validate_every = 4
log_every = 3

[decoding]
max_len_factor = 0.5
max_len_extra = 4

[runtime]
device = "cpu"
precision = "fp32"
threads = 1
"""
UPDATES, FIRST_VALIDATION = 12, 4
"""Of a training by this config."""
PREPARE, TRAIN, EVALUATE = ("prepare", "tiny.toml"), ("train", "tiny.toml"), ("evaluate", "runs/tiny")
EXPORT = ("export", "runs/tiny", "--to", "ctranslate2", "exported/tiny")
CAN_EXPORT = find_spec("ctranslate2") is not None
"""Whether the package that exports is installed."""


def build_template(root: Path, arm: Arm) -> Path:
    """Make the folder below `root` by the real commands, each in a child: this process must start no thread.

    Raises:
        BrokenPromiseError: one of them failed.
    """
    case = Case(root, arm)
    case.folder.joinpath("corpus").mkdir(parents=True)
    case.folder.joinpath("tiny.toml").write_text(CONFIG)
    sides = {lang: SAMPLE.joinpath(f"train.{lang}").read_bytes().splitlines(True) for lang in ("de", "en")}
    lengths = [max(map(len, pair)) for pair in zip(*sides.values(), strict=True)]
    short = [i for i, length in enumerate(lengths) if length <= MOST_LETTERS]
    parts = {"train": short[:NUM_TRAIN], "val": short[:NUM_TEST], "test": short[-NUM_TEST:]}
    for lang, lines in sides.items():
        for name, chosen in parts.items():
            path = case.folder / "corpus" / f"{name}.{lang}"
            path.write_bytes(b"".join(lines[i] for i in chosen))
    for command in (PREPARE, TRAIN, EVALUATE, *([EXPORT] if CAN_EXPORT else [])):
        case.succeed(*command)
    return case.folder
