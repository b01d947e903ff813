"""Event files, written to a stand-in where TensorBoard is not installed."""

import importlib.util
import sys
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli.training.monitor import EventFiles, Reading

READING = Reading(
    step=20, epoch=1, loss=3.5, nll=3.25, lr=1e-3, grad_norm=0.5, tgt_tokens_per_s=800.0
)  # fmt: skip


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
