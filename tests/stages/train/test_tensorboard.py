"""Event files, written to a stand-in where TensorBoard is not installed."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from workspace import Workspace

from mt_cli.stages.train.meter import Reading
from mt_cli.stages.train.tensorboard import EventFiles
from mt_cli.stages.train.validation import Validation
from mt_cli.translation.scoring import score

READING = Reading(
    step=20, epoch=1, loss=3.5, nll=3.25, lr=1e-3, grad_norm=0.5, tgt_tokens_per_s=800.0
)  # fmt: skip


class StandIn:
    """Keeps what a SummaryWriter is told."""

    made: "list[StandIn]" = []  # noqa: RUF012

    def __init__(self, log_dir: str, purge_step: int | None = None) -> None:
        self.log_dir, self.purge_step = Path(log_dir), purge_step
        self.scalars: list[tuple[str, float, int]] = []
        self.is_closed = False
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(StandIn, "made", [])
    return StandIn.made


def test_events_are_the_numbers_of_readings_and_validations(stand_ins: list[StandIn], tmp_path: Path) -> None:
    bleu = score(["a b c d"], ["a b c d"]).bleu
    with EventFiles(tmp_path, after_step=10) as events:
        events.add_step(READING)
        events.add_validation(Validation(step=25, nll=2.5, bleu=bleu, hyps=[], samples=[]))
    (writer,) = stand_ins
    assert (writer.log_dir, writer.purge_step, writer.is_closed) == (tmp_path / "tensorboard", 11, True)
    assert writer.scalars == [
        ("train/loss", 3.5, 20),
        ("train/nll", 3.25, 20),
        ("train/lr", 1e-3, 20),
        ("train/grad_norm", 0.5, 20),
        ("train/tgt_tokens_per_s", 800.0, 20),
        ("val/nll", 2.5, 25),
        (f"val/BLEU ({bleu.signature})", pytest.approx(100.0), 25),
    ]


def test_train_writes_events_and_hides_what_a_resumed_run_had_lost(
    workspace: Workspace, stand_ins: list[StandIn], tmp_path: Path
) -> None:
    args = ("train", "tiny.toml", "--run", tmp_path / "run", "--tensorboard", "--set", "training.log_every=2")
    assert workspace.call(*args, "--max-steps", 2).code == 0
    assert workspace.call(*args, "--max-steps", 4, "--resume").code == 0
    assert [writer.purge_step for writer in stand_ins] == [0, 3]
    assert [step for writer in stand_ins for name, _, step in writer.scalars if name == "train/loss"] == [
        2,
        4,
    ]


def test_train_without_tensorboard_exits_5_and_names_the_command_to_install_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    outcome = workspace.call("train", "tiny.toml", "--run", tmp_path / "run", "--tensorboard")
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith("error: --tensorboard needs the package tensorboard, which cannot be ")
    assert outcome.err.endswith("run: pip install 'mt_cli[tensorboard]'\n")
    assert not tmp_path.joinpath("run").exists()


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with EventFiles(tmp_path, after_step=0) as events:
        events.add_step(READING)
    read = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in read.Scalars("train/loss")] == [(20, 3.5)]
