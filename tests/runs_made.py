"""Run folders for tests, made without a training."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from learned import learn_tokenizers

from mt_cli.config.schema import Config, TokenizerConfig
from mt_cli.data.encoded import TrainingLengths
from mt_cli.data.prepared import Prepared
from mt_cli.machine.locks import locked
from mt_cli.runs.checkpoint import CheckpointState, checkpoint_name, save_checkpoint
from mt_cli.runs.run import Run, create_run
from mt_cli.text.tokenizers import Tokenizers

PAIRS = [("ein hund schläft", "a dog sleeps"), ("zwei hunde spielen", "two dogs play")]


class StandIn:
    """Prepared data as far as a new run looks at them."""

    folder = Path("data/prepared/sample")
    sha256 = "abc123"
    manifest = SimpleNamespace(lengths=TrainingLengths(src_tokens=30, sentences=2))

    def __init__(self, tokenizers: Tokenizers) -> None:
        self.tokenizers = tokenizers


@contextmanager
def making(folder: Path, config: Config, *, tokenizers: Tokenizers | None = None) -> Iterator[Run]:
    """A run of `config` that is being made, locked."""
    tokenizers = tokenizers or learn_tokenizers(
        PAIRS,
        TokenizerConfig(kind="spacy", min_freq=1, joint=False),
        src_lang="de",
        tgt_lang="en",
        lowercase=False,
    )
    prepared = cast("Prepared", StandIn(tokenizers))
    environment = {"torch": "2.x", "threads": 2}
    with locked(folder):
        yield create_run(
            folder, config, prepared=prepared, environment=environment, overwrite=False
        )


def add_checkpoint(run: Run, step: int, *, pointers: tuple[str, ...] = ()) -> None:
    """Save random weights as the checkpoint of `step`, to which `pointers` point then."""
    weights = dict(run.build_model(seed=step).named_parameters())
    name = checkpoint_name(step)
    save_checkpoint(
        run.folder / "checkpoints" / name, weights, tensors={}, state=CheckpointState(step, 0, step)
    )
    for pointer in pointers:
        run.point(pointer, to=name)
